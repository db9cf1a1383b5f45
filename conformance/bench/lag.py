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
READ = ("first_text", "last_text")
# Name -> its limit at p50, and why it can be unknown.
JUDGED = dict.fromkeys(READ, (READ_P50_LIMIT_MS, "no request came to a text")) | {"dispatch": (P50_LIMIT_MS, "nothing was sent")}
LAST_SHARE = 0.01  # of a reply's whole latency that its last text may be late without being counted


@dataclass(frozen=True, slots=True)
class Lag:
    """Milliseconds. First and last text: the most that they can have lain unread before their times, the last one less
    LAST_SHARE of the latency that it ends. Dispatch: actual send minus scheduled arrival."""

    first_text_p50_ms: float
    first_text_p99_ms: float
    last_text_p50_ms: float
    last_text_p99_ms: float
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
        judged = READ if self.is_burst else (*READ, "dispatch")
        for name in judged:
            p50_ms, p99_ms = (getattr(self, f"{name}_{part}_ms") for part in ("p50", "p99"))
            p50_limit_ms, unknown = JUDGED[name]
            words = f"{name.replace('_', '-')} lag"
            if np.isnan(p50_ms):
                yield f"{words} is not known: {unknown}"
            if p50_ms > p50_limit_ms:
                yield f"{words} p50 is {p50_ms:.1f} ms, at most {p50_limit_ms:g} ms is allowed"
            if p99_ms > P99_LIMIT_MS:
                yield f"{words} p99 is {p99_ms:.1f} ms, at most {P99_LIMIT_MS:g} ms is allowed"


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
