"""Likely causes of a failure, and what each rung promises.

Causes come from two places: planted faults, by how alike their recorded failure is (matching.py), and causes.toml, written by hand
for what no planted fault covers. Planted causes that are close come first, then those written by hand whose signature fits, then
planted ones that are alike a little, then the rest.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conformance.contract.faults import Fault, read_causes, read_faults
from conformance.findings import Finding, Verdict, factor
from conformance.matching import CLOSE, ratio, signature_of, similarity
from conformance.signatures import read_signatures

FILE = Path(__file__).with_name("causes.toml")
# Points of a cause written by hand: a factor that agrees says more than any words, one that disagrees speaks against the cause.
# The name of a check says more than its place, which is often just a tensor's name.
RATIO_POINTS, CHECK_POINTS, PLACE_POINTS = 4, 2, 1
RATIO_TOLERANCE = 0.03  # a factor estimated from a short sample of a tensor is a few per cent off
NEAR = 1e-3  # a factor closer to 1 is shown with all its digits
QUANTITY = re.compile(r"relative difference of (?:the )?(.+)")


@dataclass(frozen=True, slots=True)
class Cause:
    """`match` (regular expression) and `ratio` (got / expected) are the signature of one written by hand; neither is required.

    `similarity` is a planted one's to the failure at hand; None of one written by hand.
    """

    cause: str
    seam: str
    mend: str
    id: str = ""  # of a planted one
    symptom: str = ""
    match: str = ""
    ratio: float | None = None
    similarity: float | None = None

    @property
    def how_alike(self) -> str:
        """Empty for one written by hand and for one that nothing is compared with."""
        if self.similarity is None:
            return ""
        return f"a planted fault, alike by {self.similarity:.0%}" + ("" if self.is_close else ": not close")

    @property
    def is_close(self) -> bool:
        return self.similarity is not None and self.similarity >= CLOSE


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a rung promises, how it is judged, and what usually went wrong beside planted faults."""

    rung: str
    promise: str
    judged: str
    causes: tuple[Cause, ...]


@cache
def explanations(path: Path = FILE) -> dict[str, Explanation]:
    return {rung: _explanation(rung, table) for rung, table in tomllib.loads(path.read_text()).items()}


def usual_causes(rung: str) -> tuple[Cause, ...]:
    """All of a rung: those written by hand, then planted ones in the catalogue's order."""
    planted = dict.fromkeys(fault.cause for fault in _faults() if fault.rung == rung)
    return explanations()[rung].causes + tuple(_planted(name) for name in planted)


def likely_causes(finding: Finding, findings: Iterable[Finding] = (), without: Collection[str] = ()) -> tuple[Cause, ...]:
    """Best first, those that are not alike at all left out. `findings`: of the session so far; those of the rung are matched together,
    and what passed speaks against a cause too. `without`: faults whose signature is not used.
    """
    ranked = _rank([one for one in findings if one.rung == finding.rung] or [finding], without)
    planted = [dataclasses.replace(_planted(name), similarity=round(score, 3)) for name, score in ranked.items() if score]
    by_hand = explanations()[finding.rung].causes if finding.rung in explanations() else ()
    return tuple(sorted((*planted, *by_hand), key=lambda cause: _place(cause, finding)))


def _rank(findings: list[Finding], without: Collection[str]) -> dict[str, float]:
    """Planted causes of the findings' rung -> how alike the most alike of its faults is."""
    observed, signatures, scores = signature_of(findings), read_signatures(), {}
    passed = {one.check for one in findings if one.verdict is Verdict.PASS}
    for fault in _faults():
        if fault.rung == findings[0].rung and fault.id not in without and fault.id in signatures:
            alike = similarity(observed, signatures[fault.id], sized=_is_sized(fault), passed=passed)
            scores[fault.cause] = max(alike, scores.get(fault.cause, 0.0))
    return scores


def in_numbers(finding: Finding) -> str:
    """As "A's standard deviation is 2.449 x the expected (0.14423 against 0.0588972)"; empty where there are no two numbers."""
    found, of_worst = ratio(finding), factor(finding.got, finding.expected) is not None
    if found is None:
        return ""
    named = QUANTITY.fullmatch(finding.unit)
    quantity = named[1] if named else finding.where.rpartition(", ")[2] if of_worst else "what was computed"
    values = f" ({finding.got} against {finding.expected})" if of_worst else ""
    digits = ".4g" if abs(found - 1) > NEAR else ".8g"
    return f"{quantity or 'the value'} is {found:{digits}} x the expected{values}"


def _place(cause: Cause, finding: Finding) -> tuple[int, float]:
    """Where it comes in the list: close planted ones, fitting ones by hand, other planted ones, the rest."""
    if cause.similarity is not None:
        return (0 if cause.is_close else 2), -cause.similarity
    points = _points(cause, finding)
    return (1 if points >= CHECK_POINTS else 3), -points


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
    return Explanation(rung, table["promise"], table["judged"], tuple(Cause(**entry) for entry in table.get("cause", ())))


@cache
def _faults() -> tuple[Fault, ...]:
    return read_faults()


@cache
def _is_sized(fault: Fault) -> bool:
    """Its cause comes in several sizes: what it shows varies."""
    return any(one.value is not None for one in _faults() if one.cause == fault.cause)


@cache
def _planted(name: str) -> Cause:
    planted = _causes()[name]
    return Cause(planted.cause, planted.seam, planted.mend, id=name)


@cache
def _causes() -> dict:
    return read_causes()
