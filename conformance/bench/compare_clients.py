"""python -m conformance.bench.compare_clients: this client and others against one scripted server: error, CPU, memory, rate."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.bench.figures import rate_per_s
from conformance.bench.lag import P99_LIMIT_MS
from conformance.bench.tool_runs import Run, matched, run_tool
from conformance.bench.tools import AIPERF, GUIDELLM, OWN, VLLM, Tool
from conformance.contract.errors import ContractError
from conformance.entry import command_parser, exit_code_of
from conformance.summary import ALL_PASS
from fixtures.scripted_replies import MIXED

REQUESTS, MORE = 480, 3  # CPU per request is the slope from REQUESTS to MORE times as many: starting a tool is not measuring
HELD = 0.98  # of the asked rate must reach the server; each tool draws its own Poisson arrivals, whose rate is off by 1/sqrt(requests)
MIXED_RATE_PER_S, MIXED_ROUNDS = 5.0, 10  # so slow that a reply and its request are found by their time
COLUMNS = (
    "client", "TTFT error p50, p99 (ms)", "TPOT error p50, p99 (ms)", "CPU s / 1,000 requests", "memory (MiB)", "highest rate held",
)  # fmt: skip
Tools = list[tuple[Tool, str]]  # with the Python of its environment

EPILOG = """examples:
  python -m conformance.bench.compare_clients --vllm .tox/client-vllm/bin/python
  python -m conformance.bench.compare_clients --vllm ... --replies    what each calls a success of a server that misbehaves
  chrt -r 1 python -m conformance.bench.compare_clients ...           where others use the cores; server and clients inherit it

The server stamps its writes on the clock that all processes share. Error: TTFT and TPOT as the tool reports them for each request,
against the server's own stamps from when it had the request; every tool counts from its send here. The tables are Markdown."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute, in ms, over all requests; and the rate with which these reached the server."""

    ttft_ms: np.ndarray
    tpot_ms: np.ndarray
    rate_per_s: float

    def held(self, asked_per_s: float) -> bool:
        least = (HELD - 2 / len(self.ttft_ms) ** 0.5) * asked_per_s
        return self.rate_per_s >= least and float(np.percentile(self.ttft_ms, 99)) <= P99_LIMIT_MS


def errors_of(run: Run) -> Errors:
    if len(run.seen) != len(run.stamps):
        raise ContractError(f"{len(run.seen)} successes of {len(run.stamps)} requests: times are compared when all replies are whole")
    pairs = matched(run)
    ttft = [seen.ttft_ms - stamp.ttft_ms for seen, stamp in pairs]
    tpot = [seen.tpot_ms - stamp.tpot_ms for seen, stamp in pairs]
    return Errors(np.abs(ttft), np.abs(tpot), rate_per_s([stamp.received_ns for stamp in run.stamps]))


def measured_table(tools: Tools, rates: list[float], rate: float) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for tool, python in tools:
        few, many = (run_tool(tool, python, rate, times * REQUESTS) for times in (1, MORE))
        errors = errors_of(many)
        cells = [", ".join(f"{value:.2f}" for value in np.percentile(one, (50, 99))) for one in (errors.ttft_ms, errors.tpot_ms)]
        cpu_s = (many.cpu_s - few.cpu_s) / ((MORE - 1) * REQUESTS) * 1e3
        cells += [f"{cpu_s:.2f}", f"{many.memory_mib:.0f}", highest(tool, python, rates)]
        yield f"| {tool.name} | {' | '.join(cells)} |"


def highest(tool: Tool, python: str, rates: list[float]) -> str:
    """The last rate before the first that the tool does not hold."""
    held = "none"
    for rate in rates:
        if not errors_of(run_tool(tool, python, rate, max(REQUESTS, round(2 * rate)))).held(rate):
            return held
        held = f"{rate:g}"
    return f"{held}, the highest tried"


def replies_table(tools: Tools) -> Iterator[str]:
    """Per behaviour of the server: how many of MIXED_ROUNDS replies each tool calls a success, and its median error of TTFT there."""
    runs = [run_tool(tool, python, MIXED_RATE_PER_S, MIXED_ROUNDS * len(MIXED), "mixed") for tool, python in tools]
    yield f"| server | {' | '.join(tool.name for tool, _ in tools)} |"
    yield "|---" * (len(tools) + 1) + "|"
    for behaviour in MIXED:
        yield f"| {behaviour} | {' | '.join(_called(run, behaviour) for run in runs)} |"


def _called(run: Run, behaviour: str) -> str:
    pairs = [(seen, stamp) for seen, stamp in matched(run) if stamp.model == behaviour]
    total = sum(stamp.model == behaviour for stamp in run.stamps)
    errors = [seen.ttft_ms - stamp.ttft_ms for seen, stamp in pairs if stamp.token_ns]
    return f"{len(pairs)} of {total}" + (f", TTFT {np.median(errors):+.1f} ms" if errors else "")


def installed(tools: Tools) -> Tools:
    """Those whose Python is there; the others are named on stderr."""
    there = [(tool, python) for tool, python in tools if Path(python).exists()]
    for tool, python in tools:
        if (tool, python) not in there:
            print(f"{tool.name} is not measured: no {python}", file=sys.stderr)
    return there


def parser() -> argparse.ArgumentParser:
    top = command_parser(__doc__, EPILOG)
    for name in ("vllm", "guidellm", "aiperf"):
        top.add_argument(f"--{name}", metavar="PYTHON", help=f"of an environment with {name}")
    top.add_argument("--replies", action="store_true", help="compare what is called a success, instead of times")
    top.add_argument("--rate", type=float, default=200.0, help="at which errors and CPU are measured (default 200)")
    top.add_argument("--rates", type=float, nargs="+", default=[100, 200, 400, 600], help="tried for the highest")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    given = [(OWN, sys.executable), (VLLM, options.vllm), (GUIDELLM, options.guidellm), (AIPERF, options.aiperf)]
    tools = installed([(tool, python) for tool, python in given if python])
    lines = replies_table(tools) if options.replies else measured_table(tools, options.rates, options.rate)
    return exit_code_of("bench-client", lambda: _print(lines))


def _print(lines: Iterator[str]) -> int:
    for line in lines:
        print(line, flush=True)
    return ALL_PASS


if __name__ == "__main__":
    sys.exit(main())
