"""Schedules: their distribution once at a fixed seed, and their digests."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from conformance.bench.arrivals import burst, closed_loop, poisson
from conformance.contract.errors import ContractError

RATE_PER_S = 8.0


def exponential_p(offsets_s: np.ndarray) -> float:
    """p of the Kolmogorov-Smirnov test of the gaps against an exponential with the mean of the rate."""
    return float(stats.kstest(np.diff(offsets_s, prepend=0.0), "expon", args=(0, 1 / RATE_PER_S)).pvalue)


def test_gaps_are_exponential():
    """Gaps of an open loop are exponential with mean 1 / rate, and do not depend on the gap before."""
    offsets_s = poisson(RATE_PER_S, 4000, seed=1).offsets_s
    assert exponential_p(offsets_s) > 0.01
    gaps_s = np.diff(offsets_s)
    assert stats.pearsonr(gaps_s[:-1], gaps_s[1:]).pvalue > 0.01


@pytest.mark.parametrize("name", ["even", "uniform", "3 % faster"])
def test_other_gaps_are_seen(name):
    """Control: even gaps, uniform gaps and another rate do not pass for these arrivals (the last with 16 times as many)."""
    uniform = np.random.default_rng(1).uniform(0, 2 / RATE_PER_S, 4000)
    gaps_s = {"even": np.full(4000, 1 / RATE_PER_S), "uniform": uniform}.get(name)
    offsets_s = poisson(1.03 * RATE_PER_S, 64000, seed=1).offsets_s if gaps_s is None else np.cumsum(gaps_s)
    assert exponential_p(offsets_s) < 1e-6


def test_offsets_are_in_order_and_whole_microseconds():
    offsets_s = poisson(200.0, 1000, seed=3).offsets_s
    assert offsets_s.dtype == np.float64
    assert (np.diff(offsets_s) >= 0).all()
    assert (offsets_s == np.rint(offsets_s * 1e6) * 1e-6).all()


def test_a_schedule_is_the_same_everywhere():
    """The digest of a seed's schedule is a constant: two machines that disagree with it disagree with each other."""
    assert poisson(8.0, 480, seed=1).digest == "2065d3f1f9604ad385259c59441f579dce1ce2eabb9c31ee399e94a60e6e5187"
    assert poisson(8.0, 480, seed=1).digest == poisson(8.0, 480, seed=1).digest


def test_digests_tell_schedules_apart():
    """Control: seed, rate, number, kind, concurrency, or one offset that moved by a microsecond, each gives another digest."""
    schedules = [
        poisson(8.0, 480, 1), poisson(8.0, 480, 2), poisson(8.1, 480, 1), poisson(8.0, 479, 1), burst(480), burst(479),
        closed_loop(4, 480), closed_loop(8, 480),
    ]  # fmt: skip
    moved = schedules[0].offsets_s.copy()
    moved[7] += 1e-6
    schedules.append(dataclasses.replace(schedules[0], offsets_s=moved))
    assert len({schedule.digest for schedule in schedules}) == len(schedules)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: poisson(0.0, 5, 1), "rate 0.0"),
        (lambda: poisson(float("nan"), 5, 1), "rate nan"),
        (lambda: burst(0), "0 requests: at least 1"),
        (lambda: closed_loop(6, 5), "concurrency 6 is not from 1 to the number of requests, 5"),
    ],
)
def test_bad_schedules_are_refused(make, words):
    with pytest.raises(ContractError, match=words):
        make()
