"""What the gate says: for each claim the measured ratio or every reason why there is none, and what all of it rests on."""

import dataclasses
import math
from dataclasses import dataclass
from enum import StrEnum

from conformance.claims.claims_file import Claim
from conformance.findings import Finding
from conformance.statistics import Ratio


class ClaimVerdict(StrEnum):
    REPORTABLE = "REPORTABLE"
    WITHHELD = "WITHHELD"


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """`measured`: numerator / denominator; None where a measurement or the proof does not hold, since no ratio may then be told.

    A ratio that was measured well but does not reach what is stated is WITHHELD with its value. `numerator` and `denominator`: one
    value in `unit` for each launch or server start. `confidence`: of the interval and of the one-sided ends, each, after the
    correction for the number of claims in the file.
    """

    claim: Claim
    verdict: ClaimVerdict
    measured: Ratio | None
    reasons: tuple[str, ...] = ()
    numerator: tuple[float, ...] = ()
    denominator: tuple[float, ...] = ()
    unit: str = ""
    confidence: float = math.nan
    notes: tuple[str, ...] = ()  # what a reader of the ratio must know: prices with source and date, the cells of a peak

    @property
    def is_reportable(self) -> bool:
        return self.verdict is ClaimVerdict.REPORTABLE


@dataclass(frozen=True, slots=True)
class Level:
    """A level that a pair of bundles was judged for. `reasons`: what is missing for it; empty: it is shown.

    `devices`: the reference's and the port's.
    """

    name: str
    recipe_sha256: str
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def is_shown(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class GateResult:
    """`levels`: one a pair of bundles. `general`: reasons that withhold every claim; each claim's own reasons repeat them."""

    claims: tuple[ClaimResult, ...]
    levels: tuple[Level, ...] = ()
    general: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Every claim may be reported, and there is one."""
        return bool(self.claims) and all(one.is_reportable for one in self.claims)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all pairs, in their order."""
        return tuple(finding for level in self.levels for finding in level.findings)

    def to_json(self) -> dict:
        """Plain values for canonical JSON: findings left out, numbers that are none as null."""
        return {
            "open": self.is_open,
            "general": list(self.general),
            "levels": [_plain(one, skip=("findings",)) for one in self.levels],
            "claims": [_plain(one) for one in self.claims],
        }


def _plain(value, skip: tuple[str, ...] = ()):
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in skip]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
