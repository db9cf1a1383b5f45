"""Claims as facts: what is stated, what was measured, whether it may be reported, and what the stated numbers say of each other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.claims import consistency
from conformance.claims.claims_file import Claim, ClaimsFile
from conformance.gate.results import ClaimResult, GateResult
from conformance.report.names import KINDS, METRICS, QUANTITIES


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """`value`: the measured ratio, None where none may be told; `bound`: the end that is held against what is stated.

    `fastest`: the ratio that no device can exceed, None where it is not known. `reasons`: of this claim alone.
    """

    name: str
    about: str
    kind: str
    stated: float
    source: str
    verdict: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    n: tuple[int, ...] = ()
    confidence: float | None = None
    fastest: float | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SumFacts:
    """A sum over stated numbers; no measurement is in it."""

    name: str
    verdict: str
    arithmetic: str
    source: str


@dataclass(frozen=True, slots=True)
class Reason:
    """`claims`: the names of those that it withholds."""

    name: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """`general`: reasons that withhold every claim; `reasons`: all others."""

    reportable: int
    general: tuple[str, ...]
    reasons: tuple[Reason, ...]
    claims: tuple[ClaimFacts, ...]
    sums: tuple[SumFacts, ...]


def claims_of(file: ClaimsFile | None, gate: GateResult | None, fastest: dict[str, float]) -> Claims | None:
    """None where no claims are given. `fastest`: claim -> the ratio at the speed of light."""
    if file is None or gate is None:
        return None
    general = _shared(gate)
    claims = tuple(_claim(one, general, fastest.get(one.claim.name)) for one in gate.claims)
    return Claims(sum(one.is_reportable for one in gate.claims), general, _reasons(claims), claims, tuple(_sums(file)))


def _reasons(claims: tuple[ClaimFacts, ...]) -> tuple[Reason, ...]:
    """Each once, in the order in which they come."""
    names: dict[str, list[str]] = {}
    for claim in claims:
        for reason in claim.reasons:
            names.setdefault(reason, []).append(claim.name)
    return tuple(Reason(reason, tuple(found)) for reason, found in names.items())


def _shared(gate: GateResult) -> tuple[str, ...]:
    """Reasons that every claim has: told once."""
    if len(gate.claims) < 2:
        return gate.general
    first, *others = (one.reasons for one in gate.claims)
    return tuple(reason for reason in first if all(reason in reasons for reasons in others))


def _claim(result: ClaimResult, general: tuple[str, ...], fastest: float | None) -> ClaimFacts:
    claim, ratio = result.claim, result.measured
    head = (claim.name, _about(claim), KINDS[claim.kind], float(claim.stated.replace(",", "")), claim.source, str(result.verdict))
    reasons = tuple(one for one in result.reasons if one not in general)
    if ratio is None:
        return ClaimFacts(*head, fastest=fastest, reasons=reasons, notes=result.notes)
    bound = ratio.upper if claim.kind == "at_most" else ratio.bound
    confidence = None if math.isnan(result.confidence) else result.confidence
    return ClaimFacts(*head, ratio.value, ratio.low, ratio.high, bound, ratio.n, confidence, fastest, reasons, result.notes)


def _about(claim: Claim) -> str:
    cell = f" at {claim.cell}" if claim.cell else ""
    return f"{METRICS[claim.metric]}{cell}{QUANTITIES[claim.quantity]}, {claim.numerator} / {claim.denominator}"


def _sums(file: ClaimsFile) -> Iterator[SumFacts]:
    """What does not come out first."""
    found = sorted(consistency.check(file), key=lambda one: one.verdict is consistency.Verdict.CONSISTENT)
    for one in found:
        yield SumFacts(one.sum.about, str(one.verdict), one.arithmetic, one.sum.source)
