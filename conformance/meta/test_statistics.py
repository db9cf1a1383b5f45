"""TOST: worked values, and how often it errs."""

import numpy as np
import pytest
from scipy import stats

from conformance import test_trajectory
from conformance.contract.recipe import load_recipe
from conformance.findings import Verdict
from conformance.judge import Judge
from conformance.saved import TINY
from conformance.statistics import (
    detectable_ratio,
    equivalence,
    equivalence_of_groups,
    fewest_requests,
    geometric_mean,
    mcnemar,
    paired_bootstrap,
    pass_at_k,
    power_of_ratio,
    ratio_of_means,
)
from conformance.tolerances import read_tolerances


def test_the_bound_is_the_90_percent_interval():
    """Two one-sided 5 % tests are the 90 % interval of the mean (scipy's t-interval)."""
    differences = np.array([0.010, -0.004, 0.006, 0.001, -0.002])
    low, high = stats.t.interval(0.90, 4, loc=differences.mean(), scale=stats.sem(differences))
    assert equivalence(differences).bound == pytest.approx(max(abs(low), abs(high)))


def test_it_errs_as_often_as_it_says():
    """Runs whose true difference is the margin itself are called equivalent in about 5 % of cases."""
    draw = np.random.default_rng(0)
    calls = [equivalence(draw.normal(0.02, 0.005, 5)).bound <= 0.02 for _ in range(4000)]
    assert np.mean(calls) == pytest.approx(0.05, abs=0.012)


def test_equal_runs_are_called_equivalent_with_power():
    """With a margin of 2.8 sd, equal recipes are shown equivalent in about four of five cases or more."""
    draw = np.random.default_rng(1)
    calls = [equivalence(draw.normal(0, 1.0, 5)).bound <= 2.8 for _ in range(2000)]
    assert np.mean(calls) > 0.8


@pytest.mark.parametrize(
    ("difference", "scatter", "verdict"),
    [(0.0, 0.001, Verdict.PASS), (0.2, 0.001, Verdict.FAIL), (0.01, 0.05, Verdict.INCONCLUSIVE)],
)
def test_an_interval_over_the_margin_decides_nothing(monkeypatch, difference, scatter, verdict):
    """Inside the margin: equivalent; outside: different; across it: neither."""
    scattered = scatter * np.asarray([-1, -0.5, 0, 0.5, 1])
    pairs = [(np.ones(20), np.full(20, 1 + difference + moved)) for moved in scattered]
    monkeypatch.setattr(test_trajectory, "dropout_pairs", lambda *_: pairs)
    monkeypatch.setattr(test_trajectory, "rate_slopes", lambda _: dict.fromkeys(("final loss", "last tenth", "area"), 1.0))
    judge = Judge("trajectory", "check", "promise")
    test_trajectory.test_runs_with_dropout_are_equivalent(judge, None, None, load_recipe(TINY), read_tolerances())
    assert judge.finding.verdict is verdict


REPETITIONS = 20_000
NOMINAL = (0.94, 0.965)  # of 95 % intervals; the simulation's own standard error is 0.15 %


def test_a_ratio_is_scipys_welch_interval_on_logs():
    a, b = np.array([5.2, 5.4, 5.3, 5.5, 5.35]), np.array([3.3, 3.4, 3.31, 3.38])
    found, theirs = ratio_of_means(a, b), stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(theirs.low), np.exp(theirs.high)))
    assert found.value == pytest.approx(stats.gmean(a) / stats.gmean(b))
    assert found.low < found.bound < found.value


def test_the_inverted_ratio_is_its_inverse():
    a, b = np.array([5.2, 5.4, 5.3]), np.array([3.3, 3.4, 3.31])
    assert ratio_of_means(b, a).low == pytest.approx(1 / ratio_of_means(a, b).high)


def test_runs_without_spread_have_an_interval_of_one_point():
    found = ratio_of_means(np.full(3, 2.0), np.full(3, 1.0))
    assert (found.low, found.value, found.high, found.bound) == pytest.approx((2, 2, 2, 2))


@pytest.mark.parametrize(("n", "m", "spread"), [(5, 5, 1.0), (3, 3, 1.0), (5, 8, 3.0)])
def test_intervals_of_a_ratio_hold_the_truth_as_often_as_they_say(n, m, spread):
    """Log-normal launches, equal or other spread a side; with 3 starts a side Welch is conservative (up to 98 %)."""
    draw = np.random.default_rng(n * m)
    logs = np.log(1.6) + draw.normal(0, 0.02 * spread, (REPETITIONS, n)), draw.normal(0, 0.02, (REPETITIONS, m))
    covered = np.mean([_holds(ratio_of_means(np.exp(a), np.exp(b)), 1.6) for a, b in zip(*logs, strict=True)])
    assert NOMINAL[0] <= covered <= (0.98 if n == 3 else NOMINAL[1])


def _holds(found, truth: float) -> bool:
    return found.low <= truth <= found.high


def test_intervals_of_a_mean_over_starts_hold_the_truth_as_often_as_they_say():
    draw = np.random.default_rng(3)
    starts = np.exp(draw.normal(np.log(60), 0.05, (REPETITIONS, 3)))
    assert NOMINAL[0] <= np.mean([_holds(geometric_mean(row), 60) for row in starts]) <= NOMINAL[1]


def test_the_bootstrap_over_problems_holds_the_truth_often_enough():
    """156 problems, each with a rate of its own (beta 0.5, 0.4), five tries a side, no true difference; 400 repetitions."""
    draw, covered = np.random.default_rng(4), []
    for repetition in range(400):
        rates = draw.beta(0.5, 0.4, 156)
        first, second = draw.binomial(5, rates), draw.binomial(5, rates)
        covered.append(_holds(paired_bootstrap((first - second) / 5, repetition), 0.0))
    assert np.mean(covered) >= 0.93


def test_mcnemar_is_the_exact_binomial_test():
    """12 against 3: p = 2 * P(X <= 3 | 15, 1/2) = 0.03516 (McNemar 1947, exact form)."""
    assert mcnemar(3, 12) == pytest.approx(2 * sum(stats.binom.pmf(range(4), 15, 0.5)))
    assert mcnemar(3, 12) == pytest.approx(0.03516, abs=5e-6)
    assert mcnemar(0, 0) == 1


@pytest.mark.parametrize(("tries", "solved", "k", "expected"), [(5, 2, 1, 0.4), (5, 2, 5, 1.0), (5, 0, 5, 0.0), (4, 1, 2, 0.5)])
def test_pass_at_k_is_the_share_of_draws_with_a_pass(tries, solved, k, expected):
    assert pass_at_k(tries, solved, k) == pytest.approx(expected)


def test_pass_at_k_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="pass@6 of 2 in 5"):
        pass_at_k(5, 2, 6)


@pytest.mark.parametrize(("percentile", "over", "expected"), [(0.99, 0, 459), (0.9, 0, 44), (0.99, 1, 662), (0.5, 0, 7)])
def test_a_percentile_needs_so_many_requests(percentile, over, expected):
    """0.99^459 < 1 %; one over: 662 as MLPerf's table has it (loadgen, early stopping, 99 %)."""
    assert fewest_requests(percentile, over=over) == expected


def test_power_is_what_a_simulation_gives():
    draw = np.random.default_rng(5)
    true, n, sd = 1.05, 5, 0.02
    a, b = np.exp(draw.normal(np.log(true), sd, (4000, n))), np.exp(draw.normal(0, sd, (4000, n)))
    simulated = np.mean([ratio_of_means(x, y).bound > 1 for x, y in zip(a, b, strict=True)])
    assert power_of_ratio(true, 1.0, sd, n) == pytest.approx(simulated, abs=0.03)
    assert power_of_ratio(detectable_ratio(sd, n), 1.0, sd, n) == pytest.approx(0.8, abs=1e-6)


def test_unpaired_runs_are_equivalent_as_scipys_welch_says():
    a, b = np.array([1.0, 1.02, 0.99, 1.01]), np.array([1.01, 1.03, 1.0])
    low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.90)
    assert equivalence_of_groups(a, b).bound == pytest.approx(max(abs(low), abs(high)))
