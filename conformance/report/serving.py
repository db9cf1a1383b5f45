"""Facts of sweeps: the cells of each with their intervals, and the port's advantage in each cell, where the gate lets it through."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from conformance.bench.cell_report import LATENCIES, OUTPUT_RATE, CellSummary, summaries_of
from conformance.bench.intervals import Interval
from conformance.bench.measurements import Measurements
from conformance.bench.prices import Price, cost_of, read_prices
from conformance.claims.claims_file import Claim, ClaimsFile
from conformance.gate.evidence import Evidence
from conformance.gate.gate import CLAIMED, judge
from conformance.gate.values import LOWER_IS_BETTER, SERVING
from conformance.report.measured import Advantage, CellFacts, Estimate, Measured, Sweep
from conformance.report.names import METRICS, priced

SHOWN = (OUTPUT_RATE, *(one for one in LATENCIES if one.name in ("TTFT p50", "TTFT p99", "TPOT p50", "end to end p50")))
COST = "cost"


def sweep_facts(measured: Measured) -> tuple[Sweep, ...]:
    prices = read_prices(measured.prices)
    return tuple(_sweep(stack, one, prices) for stack, one in measured.sweeps)


def advantages(measured: Measured) -> tuple[Advantage, ...]:
    """Of every cell that the first sweep has; none without two sweeps."""
    if len(measured.sweeps) < 2 or measured.evidence is None:
        return ()
    cells = [cell.name for cell in measured.sweeps[0][1].plan.cells]
    return tuple(_advantage(cell, metric, measured.evidence) for metric in SERVING for cell in cells)


def label_of(stack: str, measurements: Measurements) -> str:
    subject = measurements.manifest.subject
    machine = " ".join(filter(None, (subject.platform.upper() or "server", subject.machine)))
    return f"{stack}, {machine}" if stack else machine


def _sweep(stack: str, side: Measurements, prices: dict[str, Price]) -> Sweep:
    machine = side.manifest.subject.machine
    price = prices.get(machine)
    cells = tuple(_cell(one, price and price.usd_per_hour) for one in summaries_of(side))
    return Sweep(label_of(stack, side), machine, side.manifest.replicates, priced(price), cells)


def _cell(summary: CellSummary, usd_per_hour: float | None) -> CellFacts:
    cell = summary.cell
    head = (cell.name, cell.mode, cell.level, cell.input_tokens, cell.output_tokens)
    return CellFacts(*head, summary.saturated, tuple(dict.fromkeys(summary.reasons)), tuple(_estimates(summary, usd_per_hour)))


def _estimates(summary: CellSummary, usd_per_hour: float | None) -> Iterator[Estimate]:
    for metric in SHOWN:
        if found := summary.interval(metric):
            yield _estimate(metric.name, metric.unit, found)
            if metric is OUTPUT_RATE and usd_per_hour is not None:
                yield _estimate(COST, "US dollars per million output tokens", cost_of(found, usd_per_hour))


def _estimate(name: str, unit: str, found: Interval) -> Estimate:
    return Estimate(name, unit, found.value, found.n, found.low, found.high)


def _advantage(cell: str, metric: str, evidence: Evidence) -> Advantage:
    """Through the gate, as a claim that states nothing: all that a ratio of this cell rests on must hold."""
    sides = ("reference", "port") if metric in LOWER_IS_BETTER else ("port", "reference")
    levels = CLAIMED if evidence.platforms - {"cpu"} else ("L0",)
    claim = Claim(f"{METRICS[metric]}, {cell}", metric, *sides, stated="1e-9", kind="at_least", source="", cell=cell, levels=levels)
    (result,) = judge(ClaimsFile(Path(), {}, (claim,), ()), evidence).claims
    found = Advantage(claim.name, cell, metric, reasons=result.reasons)
    ratio = result.measured
    return replace(found, ratio=ratio.value, low=ratio.low, high=ratio.high) if ratio else found
