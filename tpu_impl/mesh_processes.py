"""Starts the processes of a mesh's run, one or several, and kills one of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.sharding import Mesh
from tpu_impl.mesh_run import CHECKPOINTS, LINES, SAVE_EVERY

PAIR = 2
WIDEST = Mesh(8, 1)  # the mesh that two processes share
FORCED = "--xla_force_host_platform_device_count"
DEVICES = 8  # of the largest mesh; the recorder's own process has one
LOST_STEPS = 6  # of the run that loses a process after its first checkpoint
PATIENCE_S = 600.0  # for a pair to reach its first checkpoint on a busy machine
BOUND_S = 90.0  # within which a process must end whose peer is gone


class LostRun(RuntimeError):
    """A process of a mesh ended without a result; the end of what it said on stderr."""


@dataclass(frozen=True, slots=True)
class Job:
    """Runs of one recipe file, with their results in folders of `folder`."""

    recipe: Path
    folder: Path

    def run(self, mesh: Mesh, processes: int = 1, label: str = "", steps: int | None = None) -> Path:
        """Runs a mesh to its end and returns the folder of its results."""
        out = self.out(label or (mesh.name if processes == 1 else f"processes={processes}"))
        started = self.start(mesh, out, processes, steps)
        codes = [process.wait() for process in started]
        if any(codes):
            raise LostRun(f"{out.name}: exit codes {codes}: {said(out, codes.index(max(codes, key=abs)))[-2000:]}")
        return out

    def out(self, label: str) -> Path:
        out = self.folder / label
        out.mkdir(exist_ok=True)
        return out

    def start(self, mesh: Mesh, out: Path, processes: int, steps: int | None = None) -> list[subprocess.Popen]:
        """The processes, each with its part of the 8 devices; what they say goes to files in `out`."""
        arguments = [str(self.recipe), *map(str, (mesh.fsdp, mesh.tp, mesh.data)), str(out), *([str(steps)] if steps else [])]
        place = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": str(processes)}
        if processes > 1:
            place["JAX_COMPILATION_CACHE_DIR"] = str(self.out("programs"))
        started = []
        for index in range(processes):
            environment = with_devices(DEVICES // processes) | place | {"JAX_PROCESS_ID": str(index)}
            with (out / f"{index}.stderr").open("w") as stderr:
                command = [sys.executable, "-m", "tpu_impl.mesh_run", *arguments]
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": stderr}
                started.append(subprocess.Popen(command, env=environment, **pipes))
        return started


def with_devices(count: int) -> dict[str, str]:
    """This process's environment with so many CPU devices. First, because XLA reads no flag after a word that is none."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FORCED)]
    return os.environ | {"XLA_FLAGS": " ".join([f"{FORCED}={count}", *flags]), "JAX_PLATFORMS": "cpu"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def said(out: Path, index: int) -> str:
    return (out / f"{index}.stderr").read_text()


def lines_in(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / LINES).read_text().splitlines()]


@dataclass(frozen=True, slots=True)
class Lost:
    """How the process ended whose peer was killed, and whether both, started again, went on as the run that lost none."""

    processes: int
    exit_code: int
    message: str
    resumed_step: int
    equal: bool


def lose_one(job: Job, whole: Path, *, lost: int = 1, by: signal.Signals = signal.SIGKILL) -> Lost:
    """Ends one of two processes after their first checkpoint; `whole` has the results of the undisturbed pair.

    Process 0 is the coordinator, with which the other loses its heartbeats too.
    """
    out, left = job.out(f"lost-{lost}"), PAIR - 1 - lost
    started = job.start(WIDEST, out, PAIR, LOST_STEPS)
    try:
        _wait_for(out / CHECKPOINTS / str(SAVE_EVERY), started[left])
        started[lost].send_signal(by)
        started[lost].wait(BOUND_S)
        code = started[left].wait(BOUND_S)
    finally:
        for process in started:
            process.kill()
            process.wait()
    message = _message(said(out, left))
    job.run(WIDEST, PAIR, out.name, LOST_STEPS)
    resumed = lines_in(out / "0")
    steps = [line["step"] for line in resumed]
    undisturbed = [line for line in lines_in(whole / "0") if line["series"] == "step" and line["step"] in steps]
    return Lost(PAIR, code, message, steps[0], resumed == undisturbed)


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise LostRun(f"no {path.name} in {path.parent}: {said(path.parents[1], 0)[-2000:]}")
        time.sleep(0.02)


def _message(stderr: str) -> str:
    """The line that says why: the port's own, or that of JAX's coordination service when it notices first."""
    signs, lines = ("port: process", "Terminating process"), stderr.splitlines()
    found = [line[line.index(sign) :] for line in lines for sign in signs if sign in line]
    return found[-1] if found else ""
