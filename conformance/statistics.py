"""Equivalence of paired runs (TOST), on scipy."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95  # each one-sided test at 5 %
MARGIN_SDS = 2.8  # a margin below so many sd of the paired difference leaves equal recipes unproven too often at n = 5 (DESIGN.md)


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided paired t-tests: `half` is half of the mean's 90 % interval."""

    mean: float
    sd: float
    n: int
    half: float

    @property
    def bound(self) -> float:
        """The smallest margin within which these runs are shown to be equivalent."""
        return abs(self.mean) + self.half

    @property
    def least(self) -> float:
        """The smallest difference that the interval allows."""
        return max(0.0, abs(self.mean) - self.half)


def equivalence(differences: np.ndarray) -> Equivalence:
    """`differences` [n]: paired relative differences. Equivalent within a margin when `bound` is below it."""
    n, mean, sd = len(differences), float(np.mean(differences)), float(np.std(differences, ddof=1))
    half = stats.t.ppf(CONFIDENCE, n - 1) * sd / np.sqrt(n)
    return Equivalence(mean, sd, n, float(half))


def fewest_fair_steps(reference: np.ndarray, runs: int) -> float:
    """The smallest mean of `runs` runs' steps to a target that is not significantly below the reference runs' [n] mean.

    One-sided at 5 % with the reference's own spread, as MLPerf's reference convergence points (mlcommons/logging, rcp_checker).
    Steps are whole numbers: their spread is never taken for less than that of rounding to one.
    """
    n = len(reference)
    sd = max(float(np.std(reference, ddof=1)), 1 / np.sqrt(12)) * np.sqrt(1 / n + 1 / runs)
    return float(np.mean(reference) - stats.t.ppf(CONFIDENCE, n - 1) * sd)
