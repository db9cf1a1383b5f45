"""A server process: started, waited for with a limit, its log passed on, and stopped whatever happens."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress
from conformance.contract.serving.api import Api
from conformance.contract.serving.launch import Launch

POLL_S = 0.2
SAY_S = 20.0  # between lines of progress
GRACE_S = 25.0  # from SIGTERM to SIGKILL: running requests end, worker processes are joined
READ_S = 5.0  # for the end of its log
LAST_LINES = 12  # of the log, in errors


class Server:
    """`log` takes every line that the server prints. Leaving the `with` block ends the server and all its processes.

    `grace_s`: from SIGTERM to SIGKILL.
    """

    def __init__(self, launch: Launch, api: Api, progress: Progress, log: Callable[[str], None], grace_s: float = GRACE_S):
        self.api, self._launch, self._progress, self._log, self._grace_s = api, launch, progress, log, grace_s
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    def __enter__(self) -> "Server":
        check_free(self.api.host, self.api.port)
        try:
            # A session of its own: Ctrl-C in a terminal reaches us alone, and we end all of its processes.
            self._process = subprocess.Popen(
                self._launch.argv, env=os.environ | self._launch.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ContractError(f"server: `{self._launch.argv[0]}` cannot be started: {error}") from error
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._last.append(line.strip())
                self._log(line)

    def check(self) -> None:
        """Raises when the server has ended; its last words are then the reason."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(READ_S)
            words = "\n  ".join(filter(None, self._last)) or "nothing"
            raise ContractError(f"server: ended with exit code {code}; the last lines of its log:\n  {words}")

    def wait_ready(self, limit_s: float) -> None:
        """Until it says that it is healthy."""
        start = said = time.monotonic()
        while not self.api.is_healthy():
            self.check()
            now = time.monotonic()
            if now - start > limit_s:
                raise ContractError(f"server: not ready within {limit_s:g} s; its last line: {self._last_line}")
            if now - said > SAY_S:
                said = now
                self._progress(f"server not ready after {now - start:.0f} s (limit {limit_s:g} s): {self._last_line}")
            time.sleep(POLL_S)
        self._progress(f"server ready after {time.monotonic() - start:.1f} s at {self.api.url}")

    def wait_end(self) -> None:
        """Until it ends, which by itself it never should."""
        while True:
            self.check()
            time.sleep(POLL_S)

    @property
    def _last_line(self) -> str:
        return self._last[-1] if self._last else "nothing"

    def _stop(self) -> None:
        """SIGTERM, and after a while (or at a second Ctrl-C) SIGKILL, to all of its processes."""
        try:
            self._process.terminate()
            self._process.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            self._progress(f"server still there {self._grace_s:g} s after SIGTERM: killed")
        finally:
            if self._process.poll() is None and self._launch.kill:
                subprocess.run(self._launch.kill, check=False)  # `docker run` passes SIGTERM on to its container, SIGKILL it can't
            self._kill_group()
            self._process.wait()
            self._reader.join(READ_S)

    def _kill_group(self) -> None:
        """What is left of its session, such as workers of a server that died."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # nothing was left


def check_free(host: str, port: int) -> None:
    """Another server on the port would answer in the place of ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ContractError(f"server: {host}:{port} cannot be had: {error.strerror}; choose another --port") from error


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that what was started is stopped.

    SIGINT too: a shell's script starts its background commands with SIGINT ignored, and children inherit that.
    """
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
