"""Likely causes of a failed check, and what each rung promises: causes.toml, ordered for one finding by its signature."""

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conformance.findings import Finding

FILE = Path(__file__).with_name("causes.toml")
RATIO_TOLERANCE = 0.03  # a factor estimated from a short sample of a tensor is a few per cent off
# Points of a signature: a factor that agrees says more than any words, one that disagrees speaks against the cause. The name of
# a check says more than its place, which is often just a tensor's name.
RATIO_POINTS, CHECK_POINTS, PLACE_POINTS = 4, 2, 1
RELATIVE = re.compile(r"\brelative\b")


@dataclass(frozen=True, slots=True)
class Cause:
    """`match` (regular expression) and `ratio` (got / expected) are the signature; neither is required."""

    symptom: str
    cause: str
    seam: str
    mend: str
    match: str = ""
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a rung promises, how it is judged, and what usually went wrong."""

    rung: str
    promise: str
    judged: str
    causes: tuple[Cause, ...]


@cache
def explanations(path: Path = FILE) -> dict[str, Explanation]:
    return {rung: _explanation(rung, table) for rung, table in tomllib.loads(path.read_text()).items()}


def likely_causes(finding: Finding) -> tuple[Cause, ...]:
    """Causes of the finding's rung, those whose signature fits first; ties keep the file's order (most frequent first)."""
    causes = explanations()[finding.rung].causes if finding.rung in explanations() else ()
    return tuple(sorted(causes, key=lambda cause: -_points(cause, finding)))


def ratio(finding: Finding) -> float | None:
    """got / expected, where both are numbers; for relative differences 1 + measured; else None."""
    try:
        return float(finding.got) / float(finding.expected)
    except (ValueError, ZeroDivisionError):
        relative = finding.measured is not None and RELATIVE.search(finding.unit)
        return 1 + finding.measured if relative else None


def _points(cause: Cause, finding: Finding) -> int:
    in_check, in_place = (_matches(cause, text) for text in (f"{finding.check} {finding.promise}", finding.where))
    return CHECK_POINTS * in_check + PLACE_POINTS * in_place + _ratio_points(cause, ratio(finding))


def _matches(cause: Cause, text: str) -> bool:
    return bool(cause.match) and re.search(cause.match, text, re.IGNORECASE) is not None


def _ratio_points(cause: Cause, measured: float | None) -> int:
    if cause.ratio is None or measured is None:
        return 0
    near = math.isclose(measured, cause.ratio, rel_tol=RATIO_TOLERANCE, abs_tol=RATIO_TOLERANCE)
    return RATIO_POINTS if near else -RATIO_POINTS


def _explanation(rung: str, table: dict) -> Explanation:
    return Explanation(rung, table["promise"], table["judged"], tuple(Cause(**entry) for entry in table["cause"]))
