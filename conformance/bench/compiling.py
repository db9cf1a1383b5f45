"""Whether a server compiled while it was measured, from the lines of its log."""

import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from conformance.bench.validity import Check
from conformance.contract.errors import ContractError
from conformance.findings import Verdict

# Each of these is one compilation. Sources: vllm/compilation/backends.py, vllm/v1/worker/gpu_model_runner.py and vLLM's JIT monitor
# (0.32); tpu_inference/runner/compilation_manager.py; vllm/v1/worker/tpu_model_runner.py (torch_xla); jax/_src/interpreters/pxla.py.
COMPILED = re.compile(
    r"Compiling a graph for compile range|Dynamo bytecode transform time|Graph capturing finished"
    r"|(compilation|autotuning) during inference:"
    r"|Precompile \S+ -->|Compilation of .+ finished in|Compilation finished in|Recompilation after warm up is detected"
    r"|Finished XLA compilation of"
)
# Lines after which a compilation cannot go unseen. JAX says each one only with JAX_LOG_COMPILES=1: tpu-inference's own lines end
# with its precompilation, and what compiles later compiles silently. Eager mode is a sign on CPUs alone: GPUs still compile kernels.
SHOWN = re.compile(r"Kernel JIT monitor activated|Finished XLA compilation of")
EAGER = re.compile(r"Enforce eager set, disabling torch.compile")
# vLLM's monitor tells of each kernel once, whatever its later shapes, unless it is told to tell all.
ONCE, VERBOSE = re.compile(r"compilation during inference:"), re.compile(r"jit_monitor_verbose'?[:=] ?True")
SETTLE_S = 0.2  # a line is read a little after it was written
LINES = 3  # that are shown


@dataclass(frozen=True, slots=True)
class Window:
    """Of one cell: log lines that tell of a compilation, and why one could have gone unseen."""

    compiled: tuple[str, ...] = ()
    unseen: str = ""


@dataclass(slots=True)
class Watch:
    """Takes every line of a server's log, from any thread; a window is from `mark` to `window`."""

    on_cpu: bool = False
    _is_shown: bool = False
    _is_verbose: bool = False
    _seen: list[str] = field(default_factory=list)
    _marked: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, line: str) -> None:
        with self._lock:
            self._is_shown |= bool(SHOWN.search(line) or (self.on_cpu and EAGER.search(line)))
            self._is_verbose |= bool(VERBOSE.search(line))
            if COMPILED.search(line):
                self._seen.append(line.strip())

    def mark(self) -> None:
        self._settle()
        self._marked = len(self._seen)

    def window(self) -> Window:
        self._settle()
        with self._lock:
            return Window(tuple(self._seen[self._marked :]), self._unseen())

    def _settle(self) -> None:
        time.sleep(SETTLE_S)

    def _unseen(self) -> str:
        if not self._is_shown:
            return "the log has no line that shows that compilations are told (JAX: JAX_LOG_COMPILES=1)"
        if not self._is_verbose and any(map(ONCE.search, self._seen)):
            return "vLLM's monitor told of a kernel before, and tells of each once (--jit-monitor-verbose: always)"
        return ""


@dataclass(slots=True)
class FileWatch(Watch):
    """The same from the log file of a server that somebody else started."""

    path: Path = Path()
    _offset: int = 0

    def _settle(self) -> None:
        time.sleep(SETTLE_S)
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError as error:
            raise ContractError(f"server log {self.path}: {error}") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode(errors="replace").split("\n"):
            self(line)


def compile_check(window: Window) -> Check:
    if window.compiled:
        shown = "; ".join(window.compiled[:LINES])
        return Check("no compilation", Verdict.FAIL, f"{len(window.compiled)} in the window: {shown}")
    if window.unseen:
        return Check("no compilation", Verdict.NOT_PROVEN, window.unseen)
    return Check("no compilation", Verdict.PASS, "none in the server's log")
