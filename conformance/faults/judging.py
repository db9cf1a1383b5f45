"""Where the ladder sees a fault first: every check in its order, on the reference and on a bundle with the fault on top."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.checks import checks, run_check
from conformance.contract.bundle import Bundle
from conformance.contract.faults import REFUSALS, REFUSED, Fault, rung_of
from conformance.contract.schema import RUNGS
from conformance.faults.overlay import Overlay
from conformance.findings import Finding, Verdict
from conformance.pair import Pair

Given = dict[str, object]  # what checks take beside the bundles: plan, recipe, limits


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault. Rung and check are those that failed first, or None where nothing did."""

    fault: Fault
    rung: str | None = None
    check: str | None = None
    used_percent: float | None = None  # of the limit; None for exact checks
    where: str = ""
    findings: tuple[Finding, ...] = ()  # of every check of that rung
    not_proven: str = ""  # why it could not be planted here

    @property
    def as_expected(self) -> bool:
        return (self.rung, self.check) == (self.fault.rung, self.fault.check)

    @property
    def not_run(self) -> tuple[str, ...]:
        """Rungs after the one that failed: the ladder says `not run` of them."""
        return RUNGS[RUNGS.index(self.rung) + 1 :] if self.rung in RUNGS else ()


def judge_fault(fault: Fault, pair: Pair, recordings: Path, given: Given) -> Outcome:
    refused = refusal(recordings, fault)
    if refused:
        # What was recorded before the refusal is a bundle too, but a stack that refuses writes none.
        finding = Finding(refused["rung"], REFUSED, "The stack records the rung.", Verdict.FAIL, reason=refused["error"])
        return Outcome(fault, refused["rung"], REFUSED, where=refused["error"], findings=(finding,))
    clean = {"reference": pair.reference, "port": pair.port}
    overlay = Overlay(clean[fault.side], Bundle(recordings / fault.id), fault.records)
    sides = clean | {fault.side: overlay}
    findings = first_failing_rung(sides["reference"], sides["port"], given, rung_of(fault.records[0]))
    first = next((one for one in findings if one.verdict is Verdict.FAIL), None)
    return Outcome(fault, first.rung, first.check, first.used_percent, first.where, findings) if first else Outcome(fault)


def failures(reference, port, given: Given, start: str = RUNGS[0]) -> Iterator[Finding]:
    """Checks that fail, in the ladder's order. Rungs before `start` are those of the clean bundle, which a control has judged."""
    for rung in RUNGS[RUNGS.index(start) :]:
        yield from (finding for finding in _judged_rung(rung, reference, port, given) if finding.verdict is Verdict.FAIL)


def first_failing_rung(reference, port, given: Given, start: str) -> tuple[Finding, ...]:
    """Findings of all checks of the first rung where one fails; none where nothing fails."""
    rungs = (tuple(_judged_rung(rung, reference, port, given)) for rung in RUNGS[RUNGS.index(start) :])
    return next((found for found in rungs if any(one.verdict is Verdict.FAIL for one in found)), ())


def _judged_rung(wanted: str, reference, port, given: Given) -> Iterator[Finding]:
    for rung, check in checks().values():
        if rung == wanted and reference.has(rung) and port.has(rung):
            yield judged(rung, check, reference, port, given)


def alarms(pair: Pair, given: Given) -> list[str]:
    """What fails on the clean pair, where nothing may."""
    return [f"{finding.rung}: {finding.check}: {finding.where}" for finding in failures(pair.reference, pair.port, given)]


def judged(rung: str, check: Callable, reference, port, given: Given) -> Finding:
    """A check that breaks on what it is given fails, as it does under pytest."""
    try:
        return run_check(rung, check, reference, port, **given)
    except Exception as error:
        return Finding(rung, check.__name__, check.__name__, Verdict.FAIL, reason=f"{type(error).__name__}: {error}")


def refusal(recordings: Path, fault: Fault) -> dict | None:
    path = recordings / REFUSALS
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return next((line for line in lines if line["id"] == fault.id), None)


def smallest(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those that are the smallest of their kind: the sensitivity table."""
    return [outcome for outcome in outcomes if outcome.fault.smallest]
