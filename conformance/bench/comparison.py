"""Two sweeps side by side: the ratio of each metric of each cell, or why it is withheld."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from conformance.bench.cell_report import CellSummary, Metric, metrics_of, summaries_of
from conformance.bench.intervals import Interval, ratio
from conformance.bench.measurements import Measurements
from conformance.contract.serving.manifest import Difference, differences, flat

T = TypeVar("T")
LENGTH_SHARE = 0.1  # by which the output lengths of two servers may differ: latencies and rates of other replies are no comparison
LENGTHS = {"mean": np.mean, "p50": np.median, "p90": lambda lengths: np.percentile(lengths, 90)}


@dataclass(frozen=True, slots=True)
class Ratio:
    """B / A of one metric; `withheld`: every reason why there is none, and `interval` is then None."""

    metric: Metric
    interval: Interval | None
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellComparison:
    a: CellSummary
    b: CellSummary
    ratios: tuple[Ratio, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`servers`: settings in which they differ; `general`: why no cell has a ratio, and cells without a partner."""

    servers: tuple[Difference, ...]
    general: tuple[str, ...]
    cells: tuple[CellComparison, ...]


def compare(a: Measurements, b: Measurements) -> Comparison:
    """Cells are paired by name; one that a side has not is a reason of its own."""
    servers, general = _servers(a, b)
    sides = [{one.cell.name: one for one in summaries_of(side)} for side in (a, b)]
    missing = [f"cell {name} is in one sweep only" for name in sides[0] if name not in sides[1]]
    missing += [f"cell {name} is in one sweep only" for name in sides[1] if name not in sides[0]]
    objectives = tuple(goal for goal in a.plan.objectives if goal in b.plan.objectives)
    pairs = [(one, sides[1][name]) for name, one in sides[0].items() if name in sides[1]]
    cells = tuple(_cell(*pair, metrics_of(objectives), general) for pair in pairs)
    return Comparison(servers, (*general, *missing), cells)


def _servers(a: Measurements, b: Measurements) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """(what differs, reasons why no ratio of any cell is given)"""
    manifests = [[flat(manifest) for manifest in server_manifests(side)] for side in (a, b)]
    reasons = [f"{name}: the server's settings were not recorded" for name, one in _named(*manifests) if not one]
    if reasons:
        return (), tuple(reasons)
    for name, side in _named(*manifests):
        inside = {str(found) for other in side[1:] for found in differences(side[0], other)}
        reasons += [f"{name}: its own starts differ in {found}" for found in sorted(inside)]
    found = tuple(differences(manifests[0][0], manifests[1][0]))
    reasons += [f"the servers are set differently: {one}" for one in found if one.is_decisive]
    if a.manifest.code_sha256 != b.manifest.code_sha256:
        reasons.append("the sweeps were measured by different code")
    return found, tuple(reasons)


def server_manifests(side: Measurements) -> list[dict]:
    """What `parity serve` wrote, of every cell that was measured; empty where one has none."""
    names = {
        (number, record.server)
        for number in side.replicates
        for cell in side.plan.cells
        if side.has(number, cell) and not (record := side.record(number, cell)).left_out
    }
    if any(not server for _, server in names):
        return []
    return [side.server(number, server) for number, server in sorted(names)]


def _cell(a: CellSummary, b: CellSummary, metrics: tuple[Metric, ...], general: tuple[str, ...]) -> CellComparison:
    shared = (*general, *_pair_reasons(a, b))
    ratios = (_ratio(a, b, metric, shared) for metric in metrics)
    return CellComparison(a, b, tuple(one for one in ratios if one))


def _ratio(a: CellSummary, b: CellSummary, metric: Metric, shared: tuple[str, ...]) -> Ratio | None:
    """None where neither side has the metric."""
    values = a.values(metric), b.values(metric)
    if not any(values):
        return None
    reasons = list(shared)
    if metric.is_latency:
        reasons += [f"{name} is saturated: its latency is that of a growing queue" for name, one in _named(a, b) if one.saturated]
        if a.cell.mode == "burst" and a.cell.requests > 1:
            reasons.append("in a burst the latency is that of the queue before a request")
    reasons += [f"{name} has no {metric.name}" for name, one in _named(*values) if not one]
    if any(min(one, default=1) <= 0 for one in values):
        reasons.append(f"{metric.name} of 0 has no ratio")
    return Ratio(metric, None if reasons else ratio(*values), tuple(reasons))


def _named(a: T, b: T) -> tuple[tuple[str, T], tuple[str, T]]:
    return ("A", a), ("B", b)


def _pair_reasons(a: CellSummary, b: CellSummary) -> Iterator[str]:
    for name, one in _named(a, b):
        yield from (f"{name}: {reason}" for reason in one.reasons)
    if a.digest != b.digest:
        yield "other requests were sent to A than to B: schedule, prompts or lengths differ (digest)"
    yield from length_problems(_lengths(a), _lengths(b))


def length_problems(a: np.ndarray, b: np.ndarray) -> Iterator[str]:
    """Output lengths in tokens of all whole replies of two sides."""
    if not len(a) or not len(b):
        return
    for name, of in LENGTHS.items():
        found = float(of(b)) / float(of(a))
        if not 1 - LENGTH_SHARE <= found <= 1 + LENGTH_SHARE:
            yield f"output length, {name}: {of(b):.1f} tokens against {of(a):.1f} (within {LENGTH_SHARE:.0%} is allowed)"


def _lengths(summary: CellSummary) -> np.ndarray:
    counts = [item for result in summary.results if result.figures for item in result.figures.output_lengths.items()]
    return np.repeat([length for length, _ in counts], [count for _, count in counts]) if counts else np.empty(0)
