"""Child processes that record: our stacks, and any command of somebody else's that writes a bundle from a recipe."""

import os
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from conformance.contract.bundle import MANIFEST
from conformance.contract.errors import ContractError
from conformance.validation import examine

# Unless the user says otherwise. One thread a process: two recorders share two cores, and oversubscribed OpenMP is several
# times slower. JAX's platform is the user's: where there is no accelerator, the installed JAX has none either.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
JAX_CACHE = "JAX_COMPILATION_CACHE_DIR"
POLL_S = 0.05
READ_S = 5.0  # a child of the command may hold its stderr open for longer than it lives
LAST_LINES = 5  # of a command's stderr: the end of a traceback


class Child:
    """A process to be; `shown` is its command as errors show it. With `quotes`, errors end with its last lines of stderr.

    `environment`: what it has beside ours, unless the user says otherwise.
    """

    def __init__(
        self, label: str, shown: str, argv: list[str], *, folder: Path | None = None, quotes: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ):  # fmt: skip
        self.label, self.shown, self.argv, self.folder, self.quotes = label, shown, argv, folder, quotes
        self._environment = ENVIRONMENT | environment
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def start(self) -> None:
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE if self.quotes else None}
        environment = self._environment | os.environ
        try:
            self._process = subprocess.Popen(self.argv, env=environment, cwd=self.folder, errors="replace", **streams)
        except OSError as error:
            raise ContractError(f"{self.label}: `{self.shown}` cannot be started: {error}") from error
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Once started."""
        return self._process.pid

    def _pass_on(self) -> None:
        """Its progress is shown as it comes, and its end kept."""
        if self._process.stderr:
            with self._process.stderr as lines:
                for line in lines:
                    sys.stderr.write(line)
                    self._last.append(line.strip())

    def has_ended(self) -> bool:
        """Raises `ContractError` when it has ended with another exit code than 0."""
        code = self._process.poll()
        if code:
            self._reader.join(READ_S)
            raise self.error(f"ended with exit code {code}")
        return code == 0

    def error(self, what: str) -> ContractError:
        last = " | ".join(filter(None, self._last)) or "nothing"
        return ContractError(f"{self.label}: `{self.shown}` {what}" + (f"; its last lines: {last}" if self.quotes else ""))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join(READ_S)


def stack_child(label: str, command: list[str], *, quotes: bool = False, programs: Path | None = None) -> Child:
    """`python -m COMMAND`: one of our stacks. `programs`: a folder where JAX finds what another process has compiled."""
    environment = {JAX_CACHE: str(programs.resolve())} if programs else {}
    return Child(label, f"python -m {' '.join(command)}", [sys.executable, "-m", *command], quotes=quotes, environment=environment)


def command_child(label: str, command: str, arguments: list[str], folder: Path | None) -> Child:
    """`command` split as a shell would, without a shell, with `arguments` appended; it runs in `folder`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ContractError(f"--{label} {command!r}: {error}: it cannot be split into words") from error
    if not words:
        raise ContractError(f"--{label} {command!r}: no command in it")
    return Child(label, shlex.join([*words, *arguments]), [*words, *arguments], folder=folder, quotes=True)


def run_all(children: Iterable[Child], at_once: int | None = None) -> None:
    """Runs all in their order, at most `at_once` at the same time (None: all); the first failure or Ctrl-C stops the others."""
    waiting, running = deque(children), []
    try:
        while waiting or running:
            while waiting and (at_once is None or len(running) < at_once):
                waiting[0].start()
                running.append(waiting.popleft())
            time.sleep(POLL_S)
            for ended in [child for child in running if child.has_ended()]:
                ended.stop()
                running.remove(ended)
    finally:
        for child in running:
            child.stop()


def check_written(child: Child, bundle: Path, stack: str) -> None:
    """Refuses what a command left at `bundle` when it is no whole and valid bundle of the stack that it stands for."""
    if not (bundle / MANIFEST).is_file():
        raise child.error(f"ended with exit code 0 and wrote no bundle to {bundle}")
    try:
        examined = examine(bundle)
    except ContractError as error:
        raise child.error(f"ended with exit code 0 and wrote what is no bundle: {error}") from error
    problems = examined.problems
    if examined.bundle.stack != stack:
        problems = (f"{bundle}/{MANIFEST}: stack = {examined.bundle.stack!r}, not {stack!r}", *problems)
    if problems:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise child.error(f"ended with exit code 0 and wrote an invalid bundle, {count}: {problems[0]}")
