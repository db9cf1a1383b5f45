"""Geometric means and ratios with their intervals."""

import numpy as np
import pytest
from scipy import stats

from conformance.bench.intervals import geometric_mean, ratio


def test_by_hand():
    """Logs 0, 1, 2: mean 1, standard error 1 / sqrt(3), t of two degrees of freedom 4.3027."""
    found = geometric_mean(np.exp([0.0, 1.0, 2.0]))
    assert found.value == pytest.approx(np.e)
    assert np.log([found.low, found.high]) == pytest.approx([1 - 4.30265 / np.sqrt(3), 1 + 4.30265 / np.sqrt(3)], rel=1e-5)


def test_one_start_has_no_interval():
    assert geometric_mean([3.0]).low is None
    assert ratio([3.0], [6.0, 6.0]).low is None


def test_a_ratio_covers_the_true_one():
    """Of 200 drawn pairs of three starts, 95 % in the limit; with unequal spreads Welch's interval is still near it."""
    generator = np.random.default_rng(1)
    draw = [(np.exp(generator.normal(0, 0.1, 3)), np.exp(generator.normal(np.log(2), 0.03, 3))) for _ in range(200)]
    inside = np.mean([(found := ratio(a, b)).low <= 2 <= found.high for a, b in draw])
    assert 0.91 <= inside <= 0.99


def test_welch_is_scipys():
    a, b = [1.0, 1.3, 0.9, 1.1], [2.0, 2.5, 1.8]
    found, known = ratio(a, b), stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    assert np.log([found.low, found.high]) == pytest.approx([known.low, known.high])


def test_equal_starts_are_exact():
    found = ratio([2.0, 2.0, 2.0], [3.0, 3.0, 3.0])
    assert (found.value, found.low, found.high) == (pytest.approx(1.5),) * 3
