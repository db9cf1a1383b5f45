"""Intervals and tests of the claims, on scipy. Times and rates are compared as ratios: their logarithms are what is averaged.

The unit of a replicate is one job launch (training) or one server start (serving), never a step or a request (DESIGN.md, Statistics).
"""

from dataclasses import dataclass
from math import comb

import numpy as np
from scipy import stats

CONFIDENCE = 0.95  # of two-sided intervals; each one-sided test at 5 %
MARGIN_SDS = 2.8  # a margin below so many sd of the paired difference leaves equal recipes unproven too often at n = 5 (DESIGN.md)
POWER = 0.8
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided t-tests of a mean difference: `half` is half of its 90 % interval."""

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


def equivalence_of_groups(a: np.ndarray, b: np.ndarray) -> Equivalence:
    """The same for runs that are not paired: mean(b) - mean(a), by Welch. `sd` is the two groups' root mean variance, `n` all runs."""
    error, freedom = _welch(a, b)
    sd = float(np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2))
    return Equivalence(float(np.mean(b) - np.mean(a)), sd, len(a) + len(b), float(stats.t.ppf(CONFIDENCE, freedom) * error))


@dataclass(frozen=True, slots=True)
class Ratio:
    """`low` to `high` is the two-sided interval; `bound` the one-sided lower end at the same confidence, which is the claim.

    `upper` is the one-sided upper end, of claims that something is at most so much.
    """

    value: float
    low: float
    high: float
    bound: float
    n: tuple[int, int]
    upper: float = float("inf")


def ratio_of_means(numerator: np.ndarray, denominator: np.ndarray, confidence: float = CONFIDENCE) -> Ratio:
    """Ratio of geometric means of positive values [n], [m], by Welch's interval on the logarithms."""
    a, b = np.log(np.asarray(numerator, np.float64)), np.log(np.asarray(denominator, np.float64))
    error, freedom = _welch(a, b)
    middle = a.mean() - b.mean()
    two_sided, one_sided = (stats.t.ppf(level, freedom) * error for level in ((1 + confidence) / 2, confidence))
    ends = np.exp([middle, middle - two_sided, middle + two_sided, middle - one_sided, middle + one_sided])
    value, low, high, bound, upper = map(float, ends)
    return Ratio(value, low, high, bound, (len(a), len(b)), upper)


def _welch(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom (Welch 1947; Satterthwaite)."""
    parts = [np.var(group, ddof=1) / len(group) for group in (a, b)]
    total = sum(parts)
    if total == 0:
        return 0.0, float(len(a) + len(b) - 2)
    freedom = total**2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, (a, b), strict=True))
    return float(np.sqrt(total)), float(freedom)


@dataclass(frozen=True, slots=True)
class Mean:
    value: float
    low: float
    high: float
    n: int


def geometric_mean(values: np.ndarray, confidence: float = CONFIDENCE) -> Mean:
    """Of one value a replicate, such as a server start's percentile: two levels, requests within starts, of which the starts count."""
    logs = np.log(np.asarray(values, np.float64))
    half = stats.t.ppf((1 + confidence) / 2, len(logs) - 1) * stats.sem(logs)
    value, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    return Mean(float(value), float(low), float(high), len(logs))


def paired_bootstrap(differences: np.ndarray, seed: int, confidence: float = CONFIDENCE) -> Mean:
    """Mean of a difference per problem [n], resampled over problems (BCa). Equal differences have no spread to resample."""
    values = np.asarray(differences, np.float64)
    mean = float(values.mean())
    if np.ptp(values) == 0:
        return Mean(mean, mean, mean, len(values))
    found = stats.bootstrap(
        (values,), np.mean, confidence_level=confidence, n_resamples=RESAMPLES, method="BCa", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Mean(mean, float(found.low), float(found.high), len(values))


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of McNemar's test: problems that only one of two sides solves, each tried once."""
    return float(stats.binomtest(only_first, only_first + only_second, 0.5).pvalue) if only_first + only_second else 1.0


def pass_at_k(tries: int, solved: int, k: int) -> float:
    """Chance that one of k tries, drawn from `tries` of which `solved` pass, passes: unbiased (Chen et al. 2021, eq. 1)."""
    if not 0 <= solved <= tries or not 1 <= k <= tries:
        raise ValueError(f"pass@{k} of {solved} in {tries} tries: k is from 1 to tries, solved from 0 to tries")
    return 1 - comb(tries - solved, k) / comb(tries, k)


def fewest_requests(percentile: float, confidence: float = 0.99, over: int = 0) -> int:
    """Requests of which at most `over` may be slower than a bound, to say with `confidence` that this percentile is not above it.

    MLPerf inference's early stopping (loadgen/early_stopping.cc), without its tolerance: p99, none over: 459.
    """
    n = over + 1
    while stats.binom.cdf(over, n, 1 - percentile) > 1 - confidence:
        n += 1
    return n


def fewest_fair_steps(reference: np.ndarray, runs: int) -> float:
    """The smallest mean of `runs` runs' steps to a target that is not significantly below the reference runs' [n] mean.

    One-sided at 5 % with the reference's own spread, as MLPerf's reference convergence points (mlcommons/logging, rcp_checker).
    Steps are whole numbers: their spread is never taken for less than that of rounding to one.
    """
    n = len(reference)
    sd = max(float(np.std(reference, ddof=1)), 1 / np.sqrt(12)) * np.sqrt(1 / n + 1 / runs)
    return float(np.mean(reference) - stats.t.ppf(CONFIDENCE, n - 1) * sd)


def power_of_ratio(true_ratio: float, claimed: float, sd_log: float, n: int, confidence: float = CONFIDENCE) -> float:
    """Chance that n runs a side, whose logarithms scatter by `sd_log`, give a lower bound above `claimed` (non-central t)."""
    freedom, error = 2 * (n - 1), sd_log * np.sqrt(2 / n)
    if error == 0:
        return float(true_ratio > claimed)
    critical = stats.t.ppf(confidence, freedom)
    return float(stats.nct.sf(critical, freedom, np.log(true_ratio / claimed) / error))


def detectable_ratio(sd_log: float, n: int, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """The smallest true ratio, relative to the claimed one, that so many runs would have shown with that power."""
    low, high = 1.0, 1.0 + sd_log
    while power_of_ratio(high, 1.0, sd_log, n, confidence) < power:
        high = 1 + 2 * (high - 1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if power_of_ratio(middle, 1.0, sd_log, n, confidence) < power else (low, middle)
    return high
