"""Geometric means and their ratios over server starts, as conformance/statistics.py has them; a single start has no interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import gmean

from conformance import statistics


@dataclass(frozen=True, slots=True)
class Interval:
    """`value` over `n` starts; low and high are None with a single one: its spread is not known."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None


def geometric_mean(values: Sequence[float]) -> Interval:
    """Of positive values, one a server start: their 95 % t-interval on logs."""
    if len(values) < 2:
        return Interval(float(gmean(values)), len(values))
    found = statistics.geometric_mean(values)
    return Interval(found.value, found.n, found.low, found.high)


def ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """b / a, of geometric means, with Welch's 95 % interval on logs; n is the smaller number of starts."""
    n = min(len(a), len(b))
    if n < 2:
        return Interval(float(gmean(b) / gmean(a)), n)
    found = statistics.ratio_of_means(b, a)
    return Interval(found.value, n, found.low, found.high)
