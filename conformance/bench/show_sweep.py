"""A sweep, or two side by side, in the terminal."""

from collections.abc import Iterable, Iterator

from conformance.bench.cell_report import LATENCIES, CellResult, CellSummary, metrics_of
from conformance.bench.comparison import Comparison, Ratio
from conformance.bench.figures import P99_REQUESTS
from conformance.bench.intervals import Interval
from conformance.bench.measurements import Measurements

HISTOGRAM = 8  # different output lengths that are listed; more are summed up


def sweep_lines(measurements: Measurements, summaries: Iterable[CellSummary]) -> Iterator[str]:
    subject = measurements.manifest.subject
    yield f"{subject.platform or 'server'}, {subject.machine or 'machine not stated'}, model {subject.model_name}"
    for summary in summaries:
        yield ""
        yield from _cell_lines(summary, measurements)


def _cell_lines(summary: CellSummary, measurements: Measurements) -> Iterator[str]:
    yield f"{summary.cell.name}{', SATURATED' if summary.saturated else ''}: {'INVALID or not proven' if summary.reasons else 'valid'}"
    for result in summary.results:
        yield f"  start {result.replicate}: {_result(result)}"
    for metric in metrics_of(measurements.plan.objectives):
        if interval := summary.interval(metric) if not _zero(summary.values(metric)) else None:
            starts = ", ".join(f"{value:.4g}" for value in summary.values(metric))
            yield f"  {metric.name:<16} {_interval(interval)} {metric.unit}   starts: {starts}"
    if not any(summary.values(one) for one in LATENCIES if one.name.endswith("p99")):
        yield f"  p99 needs {P99_REQUESTS} whole replies"
    yield from (f"  - {reason}" for reason in dict.fromkeys(summary.reasons))


def _result(result: CellResult) -> str:
    if result.left_out:
        return f"left out: {result.left_out}"
    figures, lag = result.figures, result.lag
    rate = f"offered {_number(figures.offered_per_s)}, achieved {_number(figures.achieved_per_s)} requests/s"
    lags_ms = {"first-text": lag.first_text_p99_ms, "last-text": lag.last_text_p99_ms, "dispatch": lag.dispatch_p99_ms}
    lags = ", ".join(f"{name} lag p99 {value:.2f} ms" for name, value in lags_ms.items())
    return f"{figures.outcomes}; {rate}; output lengths {_histogram(figures.output_lengths)}; {lags}"


def _histogram(lengths: dict[int, int]) -> str:
    if len(lengths) <= HISTOGRAM:
        return ", ".join(f"{length}: {count}" for length, count in lengths.items()) or "none"
    return f"{min(lengths)} to {max(lengths)} tokens, {len(lengths)} different"


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Reasons that all metrics of a cell share are told once."""
    yield "servers: " + ("; ".join(map(str, comparison.servers)) or "no difference recorded")
    yield from (f"- {reason}" for reason in comparison.general)
    for one in comparison.cells:
        yield ""
        yield f"{one.a.cell.name}: B / A"
        given = [ratio for ratio in one.ratios if ratio.interval]
        yield from (f"  {ratio.metric.name:<16} {_interval(ratio.interval)}" for ratio in given)
        yield from _withheld([ratio for ratio in one.ratios if not ratio.interval], comparison.general)
        if not one.ratios:
            yield "  measured on neither side"


def _withheld(ratios: list[Ratio], told: tuple[str, ...]) -> Iterator[str]:
    """What they have in common comes first; `told` was printed above, for all cells."""
    if not ratios:
        return
    common = [reason for reason in ratios[0].withheld if all(reason in one.withheld for one in ratios)]
    yield f"  WITHHELD: {', '.join(one.metric.name for one in ratios)}{', for what is said above' if set(told) & set(common) else ''}"
    yield from (f"    - {reason}" for reason in dict.fromkeys(common) if reason not in told)
    own = {reason: [one.metric.name for one in ratios if reason in one.withheld] for one in ratios for reason in one.withheld}
    yield from (f"    - {', '.join(names)}: {reason}" for reason, names in own.items() if reason not in common)


def _interval(interval: Interval) -> str:
    if interval.low is None:
        return f"{interval.value:.4g} (one start: no interval)"
    return f"{interval.value:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _zero(values: list[float]) -> bool:
    """A geometric mean needs values above 0: a goodput may be 0."""
    return any(value <= 0 for value in values)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
