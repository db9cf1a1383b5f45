"""Runs a load generator against a scripted server of its own, and lays what it reports beside what the server stamped."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from scipy.optimize import linear_sum_assignment

from conformance.bench.accuracy import stamps_of
from conformance.bench.tools import Job, Seen, Tool
from conformance.contract.errors import ContractError
from fixtures.scripted_server import Stamp, scripted_server

PROMPT_TOKENS, OUTPUT_TOKENS, FIRST_S, GAP_S = 128, 32, 0.05, 0.01
SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """`stamps` in the order in which the server had the requests. CPU: all processes; memory: largest sum of their PSS."""

    seen: list[Seen]
    stamps: list[Stamp]
    cpu_s: float
    memory_mib: float


def run_tool(tool: Tool, python: str, rate: float, requests: int, behaviour: str = "plain") -> Run:
    with scripted_server(FIRST_S, GAP_S) as url, tempfile.TemporaryDirectory() as folder:
        job = Job(url, rate, requests, PROMPT_TOKENS, OUTPUT_TOKENS, Path(folder), behaviour)
        cpu_s, memory_mib = _run(tool, tool.command(python, job))
        stamps = sorted((Stamp(**stamp) for stamp in stamps_of(url)), key=lambda stamp: stamp.received_ns)
        return Run(tool.read(job.folder), stamps[-requests:], cpu_s, memory_mib)  # some send a trial request first


def matched(run: Run) -> list[tuple[Seen, Stamp]]:
    """Each reply with a request of its own, so that sends and what the server had lie nearest in time, all together.

    Requests of the same milliseconds may change places: those that follow one script, or that are sent at a rate at which there are
    hardly any.
    """
    starts_s, received_s = [one.start_ns / 1e9 for one in run.seen], [stamp.received_ns / 1e9 for stamp in run.stamps]
    rows, columns = linear_sum_assignment(np.square(np.subtract.outer(starts_s, received_s)))  # squares keep the order
    return [(run.seen[row], run.stamps[column]) for row, column in zip(rows, columns, strict=True)]


def _run(tool: Tool, command: list[str]) -> tuple[float, float]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | tool.environment)
        memory_mib = 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            memory_mib = max(memory_mib, _memory_mib(process.pid))
            time.sleep(SAMPLE_S)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        if process.returncode not in tool.measured:
            log.seek(0)
            raise ContractError(f"{tool.name} ended with {process.returncode}: {log.read()[-2000:].decode(errors='replace')}")
    return ended[2].ru_utime + ended[2].ru_stime, memory_mib


def _memory_mib(pid: int) -> float:
    total = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            total += one.memory_full_info().pss
    except psutil.NoSuchProcess:
        return 0.0  # one ended meanwhile; the next sample is whole again
    return total / 2**20
