"""What is measured under a fault of the client or the sweep: by its name in the catalogue, each with its findings in order."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np

from conformance.bench.accuracy import stamps_of
from conformance.bench.arrivals import Schedule, burst
from conformance.bench.cell_report import Metric, result_of
from conformance.bench.cells import Cell, digests_of, read_plan
from conformance.bench.client import measure
from conformance.bench.comparison import compare
from conformance.bench.load import Limits, Load, Target
from conformance.bench.measurements import Subject
from conformance.bench.prompts import draw_prompts
from conformance.bench.servers import running_at
from conformance.bench.sweep import Sweep
from conformance.bench.sweep_folder import SweepFolder
from conformance.bench.synthetic_sweep import SETTINGS, TOKENS, Scene, write_sweep
from conformance.contract.faults import BENCH
from conformance.faults.serving.checks import Seen, judged
from conformance.findings import Finding, Verdict
from conformance.judge import Judge
from fixtures.scripted_replies import MIXED

FIRST_S, GAP_S = 0.05, 0.01  # of the scripted server
# A reply long enough that a client which is starved for 150 ms still has its time per token right.
REQUESTS, REPLY_TOKENS, PROMPT_TOKENS = 8, 32, 24
CELLS = """
seed = SEED
warm_up_requests = 2
[[groups]]
mode = "MODE"
levels = [LEVEL]
input_tokens = [32]
output_tokens = 4
requests = 12
"""
# The one check of a cell that other processes of this machine can fail; the client's own scene judges it.
OF_THE_MACHINE = "client kept up"
BUSY_MS = 75.0  # 13.3 requests/s at the most: a rate of 20 is too much
OK_OF_MIXED = ("plain", "role_first", "empty_chunks", "several_tokens", "separators")
CALLED = {
    "no_done": "cut_off", "two_ends": "duplicated", "duplicate": "duplicated", "wrong_prompt_usage": "wrong_usage",
    "error_500": "http_500",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a scene plays: a running scripted server, an empty folder, and a seed that no other scene of that server has."""

    url: str
    folder: Path
    seed: int


Play = Callable[[Stage], tuple[Finding, ...]]


def _replies(behaviour: str, outcomes: dict[str, int], schedule: Schedule | None = None, limits: Limits | None = None) -> Play:
    """One run of the client."""

    def play(stage: Stage) -> tuple[Finding, ...]:
        arrivals = schedule or burst(sum(outcomes.values()))
        load = Load(arrivals, draw_prompts(TOKENS, len(arrivals), PROMPT_TOKENS, stage.seed), REPLY_TOKENS)
        urlopen(Request(f"{stage.url}/stamps", method="DELETE")).close()
        run = measure(Target(stage.url, behaviour), load, limits or Limits(total_s=60.0))
        return judged(Seen(run, load, stamps_of(stage.url), outcomes))

    return play


def _mixed() -> dict[str, int]:
    """Outcome -> requests, of one reply of each behaviour."""
    names = ["ok" if one in OK_OF_MIXED else CALLED.get(one, one) for one in MIXED]
    return {name: names.count(name) for name in names}


def _cell(behaviour: str, mode: str, level: int) -> Play:
    """A sweep of one cell on one start."""

    def play(stage: Stage) -> tuple[Finding, ...]:
        toml = stage.folder / "cells.toml"
        toml.write_text(CELLS.replace("SEED", str(stage.seed)).replace("MODE", mode).replace("LEVEL", str(level)))
        subject = Subject("", behaviour, "0" * 64, "")
        folder = SweepFolder.begin(stage.folder / "sweep", toml, subject, 1, digests_of(read_plan(toml), TOKENS))

        @contextmanager
        def start():
            yield running_at(Target(stage.url, behaviour), None, None)

        Sweep(folder, TOKENS, start).run()
        checks = result_of(folder, 1, folder.plan.cells[0]).checks
        return tuple(_finding(one.name, one.verdict, one.said) for one in checks if one.name != OF_THE_MACHINE)

    return play


def _finding(name: str, verdict: Verdict, said: str) -> Finding:
    return Finding(BENCH, name, "A cell keeps what its comparison needs.", verdict, where=said)


def _pair(check: str, other: Scene, is_comparable: Callable[[Cell, Metric], bool], one: Scene | None = None) -> Play:
    """Two sweeps, each three starts of a server that answers by a script: a ratio is given where that makes it a comparison."""

    def play(stage: Stage) -> tuple[Finding, ...]:
        sides = [write_sweep(stage.folder / name, scene) for name, scene in (("a", one or Scene()), ("b", other))]
        judge = Judge(BENCH, check, "A ratio is given of what can be compared, and of nothing else.")
        for cell in compare(*sides).cells:
            for ratio in cell.ratios:
                given, where = ratio.interval is not None, f"{cell.a.cell.name}, {ratio.metric.name}"
                judge.same(f"{where}, a ratio", given, is_comparable(cell.a.cell, ratio.metric))
        return (judge.finding,)

    return play


def _keeps_up(cell: Cell, metric: Metric) -> bool:
    return not (metric.is_latency and cell.mode == "open" and cell.level * BUSY_MS > 1e3)


def _never(cell: Cell, metric: Metric) -> bool:
    return False


NATURAL = Scene(length="natural", output_tokens=(7, 8))
# One connection, and the server stands still at each request: what is sent later is sent as late as the server lets it.
QUEUE = Schedule("poisson", np.arange(4) * 0.01, rate_per_s=100.0)
SCENES: dict[str, Play] = {
    "bench role chunk": _replies("role_first", {"ok": REQUESTS}),
    "bench several tokens a chunk": _replies("several_tokens", {"ok": REQUESTS}),
    "bench separators": _replies("separators", {"ok": REQUESTS}),
    "bench mixed replies": _replies("mixed", _mixed()),
    "bench errors": _replies("error_500", {"http_500": REQUESTS}),
    "bench queue": _replies("freeze", {"ok": len(QUEUE)}, QUEUE, Limits(connections=1)),
    "bench early ends": _replies("ends_early", {"ok": REQUESTS}),
    "bench cell": _cell("plain", "closed", 2),
    "bench saturated cell": _cell("one_at_a_time", "open", 100),
    "bench saturated pair": _pair("saturated latency", Scene(busy_ms=BUSY_MS), _keeps_up),
    "bench lengths": _pair("output lengths", replace(NATURAL, output_tokens=(4, 3)), _never, NATURAL),
    "bench kv dtypes": _pair("servers alike", Scene(settings=SETTINGS | {"kv_dtype": "fp8_e5m2"}), _never),
}  # fmt: skip
