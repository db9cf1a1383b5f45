"""Whether the client itself kept up: if not, a run is invalid, whatever it measured."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.bench.events import Record
from conformance.bench.load import Measurement
from conformance.bench.watch import LOOK_S

# Latencies of two platforms are compared to a few percent, and the shortest times to a first token are some tens of ms.
P50_LIMIT_MS, P99_LIMIT_MS = 1.0, 5.0
# A text that comes right after a look waits for the next: the p50 of an idle client was 0.5 to 1.24 ms (scripted server, 2 shared
# cores of an AMD EPYC, 2026-12-01), of which the texts really waited 0.01 to 0.1 ms. So a look is allowed on top.
READ_P50_LIMIT_MS = P50_LIMIT_MS + 1e3 * LOOK_S
LAST_SHARE = 0.01  # of a reply's whole latency that its last text may be late without being counted


@dataclass(frozen=True, slots=True)
class Lag:
    """Milliseconds. First, last: the most that the first and last texts can have lain unread before their times, the last ones' less
    LAST_SHARE of the latency that they end. Dispatch: actual send minus scheduled arrival."""

    first_p50_ms: float
    first_p99_ms: float
    last_p50_ms: float
    last_p99_ms: float
    dispatch_p50_ms: float
    dispatch_p99_ms: float
    is_burst: bool = False  # sent one after the other, however fast: the dispatch lag is then no fault

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each limit that was passed; none: the run is valid."""
        return tuple(self._problems())

    @property
    def valid(self) -> bool:
        return not self.problems

    def _problems(self) -> Iterator[str]:
        read, dispatch = ("first", "last"), () if self.is_burst else ("dispatch",)
        for name in (*read, *dispatch):
            words = "dispatch lag" if name == "dispatch" else f"{name}-text lag"
            p50_limit_ms = READ_P50_LIMIT_MS if name in read else P50_LIMIT_MS
            for part, limit_ms in (("p50", p50_limit_ms), ("p99", P99_LIMIT_MS)):
                value_ms = getattr(self, f"{name}_{part}_ms")
                if np.isnan(value_ms):
                    yield f"{words} is not known: {'nothing was sent' if name == 'dispatch' else 'no request came to a text'}"
                    break
                if value_ms > limit_ms:
                    yield f"{words} {part} is {value_ms:.1f} ms, at most {limit_ms:g} ms is allowed"


def lag_of(measurement: Measurement) -> Lag:
    """NaN where nothing was sent or came to a text, which is not valid."""
    sent = [record for record in measurement.records if record.sent_ns is not None]
    read = [record for record in sent if record.first_lag_ns is not None]
    dispatch_ns = [record.sent_ns - record.scheduled_ns for record in sent]
    is_burst = len(sent) > 1 and len({record.scheduled_ns for record in sent}) == 1
    values_ns = ([record.first_lag_ns for record in read], [_last_ns(record) for record in read], dispatch_ns)
    return Lag(*(value for one in values_ns for value in _p50_p99_ms(one)), is_burst)


def _last_ns(record: Record) -> float:
    return max(0.0, record.last_lag_ns - LAST_SHARE * (record.last_token_ns - record.scheduled_ns))


def _p50_p99_ms(values_ns) -> tuple[float, float]:
    if not len(values_ns):
        return float("nan"), float("nan")
    p50, p99 = np.percentile(np.asarray(values_ns) / 1e6, (50, 99))
    return float(p50), float(p99)
