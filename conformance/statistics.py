"""Equivalence of paired runs (TOST), on scipy."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95  # each one-sided test at 5 %
POWER_SD = 2.8  # at n = 5, a margin of 2.8 sd of the paired difference is shown with about 80 % power (DESIGN.md)


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided paired t-tests: `bound` is the smallest margin that these runs show; `smallest_powered` what they can."""

    mean: float
    sd: float
    n: int
    bound: float

    @property
    def smallest_powered(self) -> float:
        """Smallest margin that n runs of this spread show with about 80 % power."""
        return POWER_SD * self.sd * np.sqrt(5 / self.n)


def equivalence(differences: np.ndarray) -> Equivalence:
    """`differences` [n]: paired relative differences. Equivalent within a margin when `bound` is below it."""
    n, mean, sd = len(differences), float(np.mean(differences)), float(np.std(differences, ddof=1))
    half = stats.t.ppf(CONFIDENCE, n - 1) * sd / np.sqrt(n)
    return Equivalence(mean, sd, n, abs(mean) + float(half))
