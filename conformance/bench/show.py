"""A run in the terminal: whether it is valid, how requests ended, latencies, rates."""

from collections.abc import Iterator

from conformance.bench.events import OK
from conformance.bench.figures import P99_REQUESTS, Figures, Percentiles, figures_of
from conformance.bench.lag import lag_of
from conformance.bench.load import Measurement


def lines(measurement: Measurement, schedule: str) -> Iterator[str]:
    """`schedule`: its kind."""
    figures, lag = figures_of(measurement.records, open_loop=schedule != "closed"), lag_of(measurement)
    yield "valid: the client kept up" if lag.valid else f"INVALID: {'; '.join(lag.problems)}"
    if measurement.interrupted:
        yield "stopped before its end"
    yield f"requests {figures.requests}: " + ", ".join(f"{count} {name}" for name, count in figures.outcomes.items())
    for name, values in (("TTFT", figures.ttft_ms), ("TPOT", figures.tpot_ms), ("end to end", figures.e2e_ms)):
        yield f"{name:<11}{_percentiles(values)}"
    yield from _rates(figures)
    yield f"client: {measurement.cpu_s:.2f} CPU s, {1e3 * measurement.cpu_s / max(1, figures.requests):.2f} per 1,000 requests; " + (
        f"{measurement.max_rss_mib:.0f} MiB; first-text lag p50 {lag.first_text_p50_ms:.2f} p99 {lag.first_text_p99_ms:.2f} ms; "
        f"last-text lag p50 {lag.last_text_p50_ms:.2f} p99 {lag.last_text_p99_ms:.2f} ms; "
        f"dispatch lag p50 {lag.dispatch_p50_ms:.2f} p99 {lag.dispatch_p99_ms:.2f} ms"
    )


def _rates(figures: Figures) -> Iterator[str]:
    if figures.offered_per_s is not None:
        yield f"rate       offered {_number(figures.offered_per_s)}, achieved {_number(figures.achieved_per_s)} requests/s"
    if figures.outcomes.get(OK):
        per_s = (figures.requests_per_s, figures.prompt_tokens_per_s, figures.output_tokens_per_s)
        yield "throughput {} requests/s, {} prompt tokens/s, {} output tokens/s".format(*map(_number, per_s))


def _percentiles(values: Percentiles) -> str:
    if not values.n:
        return "no whole reply"
    p99 = f"{values.p99:.2f}" if values.p99 is not None else f"- (needs {P99_REQUESTS} replies, has {values.n})"
    return f"p50 {values.p50:.2f}  p90 {values.p90:.2f}  p95 {values.p95:.2f}  p99 {p99} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
