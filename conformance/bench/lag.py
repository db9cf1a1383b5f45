"""Whether the client itself kept up: if not, a run is invalid, whatever it measured."""

from dataclasses import dataclass

import numpy as np

from conformance.bench.load import Measurement

# Latencies of two platforms are compared to a few percent, and the shortest times to a first token are some tens of ms.
P50_LIMIT_MS, P99_LIMIT_MS = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class Lag:
    """Milliseconds. Loop: the most that first texts can have lain unread. Dispatch: actual send minus scheduled arrival."""

    loop_p50_ms: float
    loop_p99_ms: float
    dispatch_p50_ms: float
    dispatch_p99_ms: float
    is_burst: bool = False  # sent one after the other, however fast: the dispatch lag is then no fault

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each limit that was passed; none: the run is valid."""
        limits = {"p50": P50_LIMIT_MS, "p99": P99_LIMIT_MS}
        judged = ("loop",) if self.is_burst else ("loop", "dispatch")
        measured = [(name, part, getattr(self, f"{name}_{part}_ms")) for name in judged for part in limits]
        over = [(name, part, value) for name, part, value in measured if not value <= limits[part]]
        return tuple(f"{name} lag {part} is {value:.1f} ms, at most {limits[part]:g} ms is allowed" for name, part, value in over)

    @property
    def valid(self) -> bool:
        return not self.problems


def lag_of(measurement: Measurement) -> Lag:
    """NaN where nothing was sampled, which is not valid."""
    sent = [record for record in measurement.records if record.sent_ns is not None]
    dispatch_ns = [record.sent_ns - record.scheduled_ns for record in sent]
    is_burst = len(sent) > 1 and len({record.scheduled_ns for record in sent}) == 1
    return Lag(*_p50_p99_ms(measurement.loop_lags_ns), *_p50_p99_ms(dispatch_ns), is_burst)


def _p50_p99_ms(values_ns) -> tuple[float, float]:
    if not len(values_ns):
        return float("nan"), float("nan")
    p50, p99 = np.percentile(np.asarray(values_ns) / 1e6, (50, 99))
    return float(p50), float(p99)
