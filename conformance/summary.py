"""A session's findings in short: one line a rung, the worst use of a limit, and the exit code."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.contract.levels import L0
from conformance.contract.schema import RUNGS
from conformance.findings import SEVERITY, Finding, Verdict, worst

# Exit codes of `parity check` and of the pytest session.
ALL_PASS, CHECK_FAILED, BAD_INPUT, NOT_DECIDED = 0, 1, 2, 3
STOPPED = 130  # what shells give for Ctrl-C


@dataclass(frozen=True, slots=True)
class RungSummary:
    """`used_percent`: largest share of a limit; None where all checks are exact or nothing was measured."""

    rung: str
    verdict: Verdict
    passed: int
    total: int
    used_percent: float | None
    where: str
    reasons: tuple[str, ...]


def summarise(findings: Iterable[Finding]) -> tuple[RungSummary, ...]:
    """Every rung of the ladder, in order, whether or not it has findings."""
    findings = list(findings)
    return tuple(_rung(rung, [one for one in findings if one.rung == rung]) for rung in RUNGS)


def count(findings: Iterable[Finding], verdict: Verdict) -> int:
    return sum(finding.verdict is verdict for finding in findings)


def exit_code(findings: Sequence[Finding], rungs: tuple[str, ...] = L0.rungs) -> int:
    """0 when every check of `rungs` passed, 1 when any check failed, 3 when one is inconclusive, not proven or missing."""
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        return CHECK_FAILED
    verdicts = [worst(one.verdict for one in findings if one.rung == rung) for rung in rungs]
    return ALL_PASS if set(verdicts) <= {Verdict.PASS} else NOT_DECIDED


def _rung(rung: str, findings: list[Finding]) -> RungSummary:
    used = [one.used_percent for one in findings if one.used_percent is not None]
    reasons = tuple(dict.fromkeys(one.reason for one in findings if one.reason)) or ("no check ran",) * (not findings)
    return RungSummary(
        rung=rung,
        verdict=worst(finding.verdict for finding in findings),
        passed=count(findings, Verdict.PASS),
        total=len(findings),
        used_percent=max(used, default=None),
        where=_worst_place(findings),
        reasons=reasons,
    )


def _worst_place(findings: list[Finding]) -> str:
    """Where the worst finding is worst: worst verdict first, then the largest share of a limit."""
    ranked = sorted(findings, key=lambda one: (SEVERITY.index(one.verdict), -(one.used_percent or 0)))
    return ranked[0].where if ranked else ""
