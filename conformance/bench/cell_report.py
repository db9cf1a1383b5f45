"""What a cell came to: figures and validity of each server start, and the metrics over all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from conformance.bench.cells import Cell
from conformance.bench.compiling import compile_check
from conformance.bench.events import Record
from conformance.bench.figures import Figures, Objective, figures_of
from conformance.bench.intervals import Interval, geometric_mean
from conformance.bench.lag import Lag, lag_of
from conformance.bench.measurements import Measured, Measurements
from conformance.bench.metrics import counter_checks
from conformance.bench.options import STARTS
from conformance.bench.speed_of_light import Machine, read_machine, speed_checks
from conformance.bench.sweep import is_saturated
from conformance.bench.validity import Check, open_checks
from conformance.findings import Verdict

LONG_ENOUGH = 3  # the achieved rate is read between the first and the last third of the ends: the middle one must hold a reply


@dataclass(frozen=True, slots=True)
class Metric:
    """`is_latency`: of a saturated cell it never enters a ratio."""

    name: str
    unit: str
    is_latency: bool
    read: Callable[[Figures], float | None]


def _percentile(of: str, part: str, figures: Figures) -> float | None:
    return getattr(getattr(figures, of), part)


def _goodput(goal: Objective, figures: Figures) -> float | None:
    return figures.goodput_per_s.get(goal)


LATENCIES = tuple(
    Metric(f"{label} {part}", "ms", True, partial(_percentile, of, part))
    for label, of in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("end to end", "e2e_ms"))
    for part in ("p50", "p90", "p95", "p99")
)
OUTPUT_RATE = Metric("output", "tokens/s", False, lambda figures: figures.output_tokens_per_s)
RATES = (Metric("requests", "1/s", False, lambda figures: figures.requests_per_s), OUTPUT_RATE)


@dataclass(frozen=True, slots=True)
class CellResult:
    """Of one server start. `left_out`: why there is nothing else."""

    cell: Cell
    replicate: int
    left_out: str = ""
    figures: Figures | None = None
    lag: Lag | None = None
    checks: tuple[Check, ...] = ()
    process_start: str = ""  # by which server starts are told apart

    @property
    def saturated(self) -> bool:
        return self.figures is not None and is_saturated(self.cell, self.figures)


@dataclass(frozen=True, slots=True)
class CellSummary:
    """Of all server starts. `reasons`: why nothing of it may be compared; `digest`: of what was sent."""

    cell: Cell
    digest: str
    results: tuple[CellResult, ...]
    reasons: tuple[str, ...]

    @property
    def saturated(self) -> bool:
        """On any start."""
        return any(result.saturated for result in self.results)

    def values(self, metric: Metric) -> list[float]:
        """One a start; empty where a start lacks it, as p99 of too few requests does."""
        read = [metric.read(result.figures) for result in self.results if result.figures]
        return [] if not read or None in read or len(read) < len(self.results) else read

    def interval(self, metric: Metric) -> Interval | None:
        values = self.values(metric)
        return geometric_mean(values) if values else None


def summaries_of(measurements: Measurements) -> tuple[CellSummary, ...]:
    """Every cell, in the plan's order; replicates that have not come to it yet are reasons. Kept, but of a folder that grows."""
    return _kept(measurements) if type(measurements) is Measurements else _summaries(measurements)


@cache
def _kept(measurements: Measurements) -> tuple[CellSummary, ...]:
    """Raw events are read once, however many ask."""
    return _summaries(measurements)


def _summaries(measurements: Measurements) -> tuple[CellSummary, ...]:
    return tuple(_summary(measurements, cell) for cell in measurements.plan.cells)


def metrics_of(objectives: tuple[Objective, ...]) -> tuple[Metric, ...]:
    """All metrics; a goodput for each objective."""
    goodputs = (Metric(f"goodput ({_goal(goal)})", "1/s", True, partial(_goodput, goal)) for goal in objectives)
    return LATENCIES + RATES + tuple(goodputs)


def result_of(measurements: Measurements, replicate: int, cell: Cell) -> CellResult:
    measured = measurements.read(replicate, cell)
    if measured.record.left_out:
        return CellResult(cell, replicate, measured.record.left_out)
    server = measurements.server(replicate, measured.record.server)
    records, objectives = measured.run.records, measurements.plan.objectives
    figures, lag = figures_of(records, objectives, open_loop=cell.mode == "open"), lag_of(measured.run)
    checks = tuple(_checks(measurements, measured, server, lag, figures))
    start = measured.record.before.process_start_s
    return CellResult(cell, replicate, "", figures, lag, checks, server.get("started", "") if start is None else f"{start:.2f}")


def _checks(measurements: Measurements, measured: Measured, server: dict, lag: Lag, figures: Figures) -> Iterator[Check]:
    record, records = measured.record, measured.run.records
    said = "; ".join(lag.problems) or "lags are within their limits"
    yield Check("client kept up", Verdict.FAIL if lag.problems else Verdict.PASS, said)
    failed = {name: count for name, count in figures.outcomes.items() if name != "ok"}
    yield Check("whole replies", Verdict.FAIL if failed else Verdict.PASS, f"{failed or 'all'} of {figures.requests}")
    yield from _long_enough(measured.cell, records, figures)
    yield from counter_checks(record.before, record.after, records)
    yield compile_check(record.window)
    subject = measurements.manifest.subject
    model = subject.model and subject.model.served(server.get("settings", {}))
    yield from speed_checks(_machine(subject.machine, server), model, measured.cell, records)


def _long_enough(cell: Cell, records: tuple[Record, ...], figures: Figures) -> Iterator[Check]:
    """Whether a server keeps up shows only when arrivals go on long after the first replies have ended."""
    if cell.mode != "open" or not figures.e2e_ms.n or is_saturated(cell, figures):
        return
    arrivals = [record.scheduled_ns for record in records]
    lasted_s, needed_s = (max(arrivals) - min(arrivals)) / 1e9, LONG_ENOUGH * figures.e2e_ms.p90 / 1e3
    said = f"arrivals lasted {lasted_s:.1f} s; {LONG_ENOUGH} times a reply (p90) is {needed_s:.1f} s"
    yield Check("long enough", Verdict.PASS if lasted_s >= needed_s else Verdict.INCONCLUSIVE, said)


def _machine(name: str, server: dict) -> Machine | None:
    """None where the peak figures are not those of what runs: quantised weights multiply at another rate."""
    quantised = server.get("settings", {}).get("quantisation", "none") != "none"
    return read_machine(name) if name and not quantised else None


def _summary(measurements: Measurements, cell: Cell) -> CellSummary:
    results = tuple(result_of(measurements, number, cell) for number in measurements.replicates if measurements.has(number, cell))
    return CellSummary(cell, measurements.manifest.cells[cell.name], results, tuple(_reasons(results)))


def _reasons(results: tuple[CellResult, ...]) -> Iterator[str]:
    measured = [result for result in results if not result.left_out]
    for result in results:
        if result.left_out:
            yield f"start {result.replicate}: left out: {result.left_out}"
        yield from (f"start {result.replicate}: {check}" for check in open_checks(result.checks))
    if len(measured) < STARTS:
        yield f"server starts: {len(measured)}; {STARTS} are needed"
    starts = [result.process_start for result in measured]
    if "" in starts:
        yield "NOT PROVEN: server starts cannot be told apart"
    elif len(set(starts)) < len(starts):
        yield f"{len(starts)} replicates are of {len(set(starts))} server starts"


def _goal(goal: Objective) -> str:
    limits = {"TTFT": goal.ttft_ms, "TPOT": goal.tpot_ms, "end to end": goal.e2e_ms}
    return ", ".join(f"{name} {value:g} ms" for name, value in limits.items() if value is not None)
