"""Geometric means and their ratios over server starts, with t-intervals on logarithms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """`value` over `n` starts; low and high are None with a single one: its spread is not known."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None


def geometric_mean(values: Sequence[float]) -> Interval:
    """Of positive values, one a server start: their 95 % t-interval on logs."""
    logs = np.log(np.asarray(values, np.float64))
    mean, n = float(np.mean(logs)), len(logs)
    if n < 2:
        return Interval(float(np.exp(mean)), n)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(logs, ddof=1) / np.sqrt(n)
    return Interval(float(np.exp(mean)), n, float(np.exp(mean - half)), float(np.exp(mean + half)))


def ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """b / a, of geometric means, with Welch's 95 % interval on logs; n is the smaller number of starts."""
    logs = [np.log(np.asarray(values, np.float64)) for values in (b, a)]
    value, n = float(np.exp(np.mean(logs[0]) - np.mean(logs[1]))), min(map(len, logs))
    if n < 2:
        return Interval(value, n)
    half = _welch_half(*logs)
    return Interval(value, n, value / float(np.exp(half)), value * float(np.exp(half)))


def _welch_half(a: np.ndarray, b: np.ndarray) -> float:
    """scipy's own test warns of starts that are nearly equal."""
    errors = np.array([np.var(one, ddof=1) / len(one) for one in (a, b)])
    if not errors.sum():
        return 0.0
    freedom = errors.sum() ** 2 / np.sum(errors**2 / [len(a) - 1, len(b) - 1])
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(errors.sum()))
