"""TOST: worked values, and how often it errs."""

import numpy as np
import pytest
from scipy import stats

from conformance import test_trajectory
from conformance.commands import TINY
from conformance.contract.recipe import load_recipe
from conformance.findings import Verdict
from conformance.judge import Judge
from conformance.statistics import equivalence
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
