"""How often the true cause of a planted fault is named: first, and among the first three.

A fault is never diagnosed by its own recording and counted as if it were another's. There are two kinds of evidence:

held out    the fault's own signature is left out, and its cause is known by other sizes or places of it; or the whole run was
            recorded with another recipe than the signatures
distinct    a cause with one fault only, in a run of the signatures' own recipe: its own signature is there, so a right answer
            says that no other cause looks the same, and nothing of a second recording. Ties count against it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.causes import Cause, likely_causes
from conformance.contract.faults import Fault
from conformance.faults.judging import Outcome
from conformance.findings import Verdict
from conformance.signatures import recipe_of_signatures

AMONG = 3
HELD_OUT, DISTINCT = "held out", "distinct"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`rank` of the true cause among those named; None where it is not named at all."""

    fault: Fault
    kind: str
    rank: int | None
    named: str  # the cause named first

    @property
    def is_first(self) -> bool:
        return self.rank == 1

    @property
    def is_among(self) -> bool:
        return self.rank is not None and self.rank <= AMONG


def diagnose_all(outcomes: Iterable[Outcome], recipe: str, *, whole: bool = True) -> list[Diagnosis]:
    """Of every fault that was caught. `recipe`: digest of the run's; not `whole`: at its first failure."""
    outcomes = [outcome for outcome in outcomes if outcome.findings]
    other_recipe = recipe != recipe_of_signatures()
    members = Counter((outcome.fault.cause, outcome.fault.rung) for outcome in outcomes)
    return [_diagnose(outcome, other_recipe, members[outcome.fault.cause, outcome.fault.rung] > 1, whole) for outcome in outcomes]


def _diagnose(outcome: Outcome, other_recipe: bool, has_kin: bool, whole: bool) -> Diagnosis:
    without = (outcome.fault.id,) if has_kin and not other_recipe else ()
    first = next(index for index, one in enumerate(outcome.findings) if one.verdict is Verdict.FAIL)
    named = likely_causes(outcome.findings[first], outcome.findings if whole else outcome.findings[: first + 1], without)
    kind = HELD_OUT if has_kin or other_recipe else DISTINCT
    return Diagnosis(outcome.fault, kind, _rank(named, outcome.fault.cause), (named[0].id or named[0].cause) if named else "nothing")


def _rank(named: Sequence[Cause], true: str) -> int | None:
    """In the list as it is shown; of causes that are equally alike the true one counts as the last."""
    own = next((cause for cause in named if cause.id == true), None)
    if own is None:
        return None
    return 1 + max(place for place, cause in enumerate(named) if cause.similarity == own.similarity)


def lines(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """A line a kind of evidence, then the faults whose cause is not the first."""
    return [_line(kind, found) for kind in (HELD_OUT, DISTINCT) if (found := [one for one in diagnoses if one.kind == kind])] + [
        f"  {one.fault.id}: its cause comes {one.rank or 'nowhere'}; first is {one.named}" for one in diagnoses if not one.is_first
    ]


def _line(kind: str, found: Sequence[Diagnosis]) -> str:
    first, among = sum(one.is_first for one in found), sum(one.is_among for one in found)
    total = len(found)
    return f"{kind}: true cause first for {first} of {total} ({first / total:.0%}), among the first three {among} ({among / total:.0%})"
