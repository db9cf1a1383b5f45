"""Equivalence of paired runs (TOST), on scipy."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95  # each one-sided test at 5 %


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided paired t-tests: `bound` is the smallest margin within which these runs are shown to be equivalent."""

    mean: float
    sd: float
    n: int
    bound: float


def equivalence(differences: np.ndarray) -> Equivalence:
    """`differences` [n]: paired relative differences. Equivalent within a margin when `bound` is below it."""
    n, mean, sd = len(differences), float(np.mean(differences)), float(np.std(differences, ddof=1))
    half = stats.t.ppf(CONFIDENCE, n - 1) * sd / np.sqrt(n)
    return Equivalence(mean, sd, n, abs(mean) + float(half))
