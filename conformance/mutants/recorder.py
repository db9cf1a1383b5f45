"""The port's recorder as a process that is asked for one part after the other; one that dies or hangs is started anew."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from conformance.children import ENVIRONMENT, JAX_CACHE

COMMAND = ["-m", "tpu_impl.faults.serving"]


class Lost(Exception):
    """The recorder gave no answer: it died, or the time limit was over."""


class Recorder:
    def __init__(self, recipe: Path, programs: Path, limit: float, log: Path):
        """`limit`: seconds for one answer. `programs`: folder of compiled programs, which a recorder started anew finds again."""
        self._recipe, self._limit, self._log, self._process, self._over = recipe, limit, log, None, False
        self._environment = ENVIRONMENT | {JAX_CACHE: str(programs.resolve())} | os.environ

    def __enter__(self) -> "Recorder":
        self._start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        """For good, from any thread."""
        self._over = True
        self._end()

    def ask(self, **asked) -> dict:
        """One question, one answer. Lost: none came, and a new process with nothing planted stands ready."""
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            return self._answer()
        except (Lost, BrokenPipeError, ValueError) as error:  # ValueError: no JSON, or stopped from another thread
            self._end()
            if not self._over:
                self._start()
            raise Lost(str(error)) from error

    def _start(self) -> None:
        command = [sys.executable, *COMMAND, "--recipe", str(self._recipe)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        self.parts: tuple[str, ...] = tuple(self._answer()["parts"])

    def _answer(self) -> dict:
        if not select.select([self._process.stdout], [], [], self._limit)[0]:
            raise Lost(f"no answer in {self._limit:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Lost(f"the recorder ended with exit code {self._process.wait()}; see {self._log}")
        return json.loads(line)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                pipe.close()
