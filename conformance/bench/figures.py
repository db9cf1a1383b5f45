"""Figures of a run from its raw events alone. Only whole replies have latencies; everything else is counted by what it was."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.bench.events import Record, outcomes, whole
from conformance.statistics import fewest_requests

# From so many independent requests on, their largest latency is at least the true p99 with 99 % confidence. With fewer, what is called
# p99 may be any smaller percentile.
P99_REQUESTS = fewest_requests(0.99)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds over `n` values, linear between ranks; None: too few of them."""

    n: int
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level: a reply counts for goodput when it keeps each limit that is set. Milliseconds."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def kept(self, record: Record) -> bool:
        measured = {"ttft_ms": ttft_ms(record), "tpot_ms": tpot_ms(record), "e2e_ms": e2e_ms(record)}
        limits = {name: getattr(self, name) for name in measured}
        return all(limit is None or measured[name] is None or measured[name] <= limit for name, limit in limits.items())


@dataclass(frozen=True, slots=True)
class Figures:
    """`outcomes`: how many requests ended how. Rates are per second; goodput has a rate for each objective asked for."""

    requests: int
    outcomes: dict[str, int]
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    duration_s: float | None  # first scheduled arrival to the end of the last whole reply
    offered_per_s: float | None  # None: a burst or a closed loop
    achieved_per_s: float | None  # None where offered is
    requests_per_s: float | None
    prompt_tokens_per_s: float | None
    output_tokens_per_s: float | None
    goodput_per_s: dict[Objective, float]
    output_lengths: dict[int, int]  # tokens by `usage` -> replies

    @property
    def failed(self) -> int:
        """Requests that were sent and have no whole reply, those that the user broke off excepted."""
        return sum(count for name, count in self.outcomes.items() if name not in ("ok", "unsent", "interrupted"))


def figures_of(records: Sequence[Record], objectives: Sequence[Objective] = (), *, open_loop: bool = True) -> Figures:
    """`open_loop` False: a closed loop's requests have no arrivals of their own, so nothing was offered."""
    good = whole(tuple(records))
    duration_s = _duration_s(records, good)
    scheduled_ns = [record.scheduled_ns for record in records if record.scheduled_ns is not None]
    offered_per_s = rate_per_s(scheduled_ns) if open_loop else None
    return Figures(
        requests=len(records),
        outcomes=outcomes(tuple(records)),
        ttft_ms=percentiles([ttft_ms(record) for record in good]),
        tpot_ms=percentiles([value for value in map(tpot_ms, good) if value is not None]),
        e2e_ms=percentiles([e2e_ms(record) for record in good]),
        duration_s=duration_s,
        offered_per_s=offered_per_s,
        achieved_per_s=rate_per_s([record.last_token_ns for record in good]) if offered_per_s else None,
        requests_per_s=_rate(len(good), duration_s),
        prompt_tokens_per_s=_rate(sum(record.usage_prompt_tokens for record in good), duration_s),
        output_tokens_per_s=_rate(sum(record.usage_completion_tokens for record in good), duration_s),
        goodput_per_s={goal: rate for goal in objectives if (rate := _rate(sum(map(goal.kept, good)), duration_s)) is not None},
        output_lengths=dict(sorted(Counter(record.usage_completion_tokens for record in good).items())),
    )


def ttft_ms(record: Record) -> float:
    """Time to first token, of a whole reply: the first text that is not empty, from the scheduled arrival."""
    return (record.first_token_ns - record.scheduled_ns) / 1e6


def tpot_ms(record: Record) -> float | None:
    """Time per output token after the first, tokens by `usage`; None with a single token."""
    rest = record.usage_completion_tokens - 1
    return (record.last_token_ns - record.first_token_ns) / 1e6 / rest if rest else None


def e2e_ms(record: Record) -> float:
    """End to end: the last event with a choice, from the scheduled arrival."""
    return (record.last_token_ns - record.scheduled_ns) / 1e6


def percentiles(values_ms: Sequence[float]) -> Percentiles:
    if not values_ms:
        return Percentiles(0)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values_ms, (50, 90, 95, 99)))
    return Percentiles(len(values_ms), p50, p90, p95, p99 if len(values_ms) >= P99_REQUESTS else None)


def rate_per_s(times_ns: Sequence[int]) -> float | None:
    """Events per second, from the mean time of the first third to that of the last; None when all are at once or fewer than two.

    Of arrivals it is the offered rate, of ends the achieved one. A server that keeps up only shifts the arrivals, whatever its
    latency, and the two agree; one that does not ends them at its own rate. Count / duration would call short runs saturated.
    """
    times = np.sort(np.asarray(times_ns, np.int64))
    third = max(1, len(times) // 3)
    span_s = (times[-third:].mean() - times[:third].mean()) / 1e9 if len(times) else 0.0
    return float((len(times) - third) / span_s) if span_s else None


def _duration_s(records: Sequence[Record], good: Sequence[Record]) -> float | None:
    if not good:
        return None
    first = min(record.scheduled_ns for record in records if record.scheduled_ns is not None)
    return (max(record.last_token_ns for record in good) - first) / 1e9


def _rate(count: int, duration_s: float | None) -> float | None:
    return count / duration_s if duration_s else None
