"""Figures from raw events, worked by hand; what failed never moves a latency."""

import dataclasses

import numpy as np
import pytest

from conformance.bench.figures import P99_REQUESTS, Objective, figures_of, rate_per_s
from conformance.bench.synthetic import GOOD, MS, WRONG, but


def at(index: int, first_ms: float, gap_ms: float = 10.0, tokens: int = 4):
    """Request `index`, scheduled at 10 ms · index; its first token comes `first_ms` later, the others every `gap_ms`."""
    start = index * 10 * MS
    times = tuple(start + round((first_ms + gap_ms * k) * MS) for k in range(tokens))
    return dataclasses.replace(
        GOOD, index=index, scheduled_ns=start, sent_ns=start, chunk_ns=times, chunk_characters=(3,) * tokens,
        chunk_tokens=(-1,) * tokens, max_tokens=tokens, usage_completion_tokens=tokens,
    )  # fmt: skip


def test_figures_are_as_worked_by_hand():
    """Three replies, 20, 40 and 60 ms to their first token, 4 tokens, 10 ms each: the last ends at 20 + 60 + 30 ms."""
    figures = figures_of([at(0, 20), at(1, 40), at(2, 60)], [Objective(ttft_ms=40), Objective(ttft_ms=40, e2e_ms=60)])
    assert figures.ttft_ms.p50 == 40
    assert figures.tpot_ms.p50 == 10
    assert figures.e2e_ms.p50 == 70
    assert figures.duration_s == pytest.approx(0.110)
    assert figures.output_tokens_per_s == pytest.approx(12 / 0.110)
    assert figures.prompt_tokens_per_s == pytest.approx(48 / 0.110)
    assert list(figures.goodput_per_s.values()) == pytest.approx([2 / 0.110, 1 / 0.110])
    assert figures.offered_per_s == pytest.approx(100)
    assert figures.output_lengths == {4: 3}


@pytest.mark.parametrize("name", WRONG)
def test_no_failure_is_averaged_in(name):
    """Latencies, lengths and throughput are those of whole replies; the failure is counted under its name."""
    outcome, record = WRONG[name]
    clean, mixed = figures_of([at(0, 20), at(1, 40)]), figures_of([at(0, 20), at(1, 40), record])
    assert (mixed.ttft_ms, mixed.tpot_ms, mixed.e2e_ms) == (clean.ttft_ms, clean.tpot_ms, clean.e2e_ms)
    assert (mixed.output_lengths, mixed.output_tokens_per_s) == (clean.output_lengths, clean.output_tokens_per_s)
    assert mixed.outcomes == {"ok": 2, outcome: 1}
    assert mixed.failed == (outcome not in ("unsent", "interrupted"))


def test_another_whole_reply_is_averaged_in():
    """Control."""
    assert figures_of([at(0, 20), at(1, 40), at(2, 500)]).e2e_ms != figures_of([at(0, 20), at(1, 40)]).e2e_ms


def test_p99_needs_459_replies():
    """0.99^459 < 0.01 <= 0.99^458: only from 459 on is the largest of them above the true p99 with 99 % confidence."""
    assert 0.99**P99_REQUESTS < 0.01 <= 0.99 ** (P99_REQUESTS - 1)
    records = [at(index, 20 + index) for index in range(P99_REQUESTS)]
    assert figures_of(records).ttft_ms.p99 == pytest.approx(20 + 0.99 * (P99_REQUESTS - 1))
    assert figures_of(records[1:]).ttft_ms.p99 is None
    assert figures_of([*records[1:], but(status=500)]).ttft_ms.p99 is None


def test_tokens_are_counted_by_usage_not_by_chunks():
    """Four tokens in two chunks: the time per token is a third of the time between them; a single token has none."""
    two = dataclasses.replace(at(0, 20, 30, 2), max_tokens=4, usage_completion_tokens=4)
    assert figures_of([two]).tpot_ms.p50 == 10
    assert figures_of([at(0, 20, tokens=1)]).tpot_ms.n == 0


def test_a_server_that_keeps_up_achieves_the_offered_rate():
    """Whatever its latency, within 1 %; control: one that serves 90 of 100 requests/s achieves 90."""
    arrivals_ns = np.cumsum(np.random.default_rng(1).exponential(0.01, 500)) * 1e9
    for latency_s in (0.0, 0.5, 30.0):
        ends_ns = arrivals_ns + (latency_s + np.random.default_rng(2).exponential(0.1, 500)) * 1e9
        assert rate_per_s(ends_ns) == pytest.approx(rate_per_s(arrivals_ns), rel=0.01)
    assert rate_per_s(np.arange(500) / 90 * 1e9) == pytest.approx(90)


def test_a_closed_loop_offers_nothing():
    """Control: the same records as an open loop's have an offered rate."""
    records = [at(0, 20), at(1, 40), at(2, 60)]
    closed = figures_of(records, open_loop=False)
    assert closed.offered_per_s is closed.achieved_per_s is None
    assert closed.requests_per_s == figures_of(records).requests_per_s
    assert figures_of(records).offered_per_s == pytest.approx(100)


def test_a_burst_and_nothing_at_all_have_figures_too():
    together = figures_of([but(index=0), but(index=1)])
    assert together.offered_per_s is together.achieved_per_s is None
    assert together.requests_per_s == pytest.approx(2 / 0.040)
    nothing = figures_of([but(status=500)])
    assert nothing.ttft_ms.n == 0
    assert nothing.output_tokens_per_s is nothing.duration_s is None
