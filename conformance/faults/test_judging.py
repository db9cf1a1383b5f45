"""What is said of a fault: where it was caught, whether that is where the catalogue says, what was not run."""

import dataclasses
import json

import pytest

from conformance.checks import checks
from conformance.contract.errors import NotRecorded
from conformance.contract.faults import REFUSALS, REFUSED, read_faults
from conformance.contract.schema import RUNGS
from conformance.faults.judging import Outcome, judge_fault, judged, smallest
from conformance.faults.table import cells
from conformance.findings import Verdict

FAULT = read_faults()[0]


def test_checks_come_in_the_ladders_order():
    """Rung by rung, and in each as its file has them: `first` means the same as under pytest."""
    rungs = [rung for rung, _ in checks().values()]
    assert rungs == sorted(rungs, key=RUNGS.index)
    lines = [check.__code__.co_firstlineno for rung, check in checks().values() if rung == "logits"]
    assert lines == sorted(lines)


def test_caught_where_the_catalogue_says():
    outcome = Outcome(FAULT, FAULT.rung, FAULT.check, 250.0, "row 3")
    assert outcome.as_expected
    assert cells(outcome) == (FAULT.id, f"{FAULT.rung} / {FAULT.check}", "yes", "250", "batches to evaluation", "row 3")


@pytest.mark.parametrize("found", [(None, None), ("generation", FAULT.check), (FAULT.rung, "test_another")])
def test_caught_elsewhere_or_nowhere_is_not_as_expected(found):
    outcome = Outcome(FAULT, *found)
    assert not outcome.as_expected
    assert cells(outcome)[2].startswith("no: ")


def test_later_rungs_are_not_run():
    assert Outcome(FAULT, "generation", "test_stops_are_equal").not_run == ("serving", "evaluation")
    assert Outcome(FAULT).not_run == ()


def test_a_refusal_is_an_outcome(tmp_path):
    """A stack that can't record a rung under a fault has shown it before anything is compared."""
    (tmp_path / REFUSALS).write_text(json.dumps({"id": FAULT.id, "rung": "adapters", "error": "ValueError: no"}) + "\n")
    outcome = judge_fault(FAULT, None, tmp_path, {})
    assert (outcome.rung, outcome.check, outcome.where) == ("adapters", REFUSED, "ValueError: no")


def test_the_sensitivity_table_holds_the_smallest_sizes():
    sizes = [Outcome(dataclasses.replace(FAULT, smallest=is_smallest)) for is_smallest in (True, False)]
    assert smallest(sizes) == sizes[:1]


def test_what_a_partial_rung_lacks_is_not_proven():
    """Control: a check that breaks otherwise fails, and so does one that has measured a difference before it asks."""

    def absent(judge):
        """A check."""
        raise NotRecorded("port recorded sharding in part, without mesh data=8")

    def broken(judge):
        """A check."""
        raise KeyError("no such mesh")

    def different(judge):
        """A check."""
        judge.same("rows", 1, 2)
        absent(judge)

    verdicts = [judged("sharding", check, None, None, {}).verdict for check in (absent, broken, different)]
    assert verdicts == [Verdict.NOT_PROVEN, Verdict.FAIL, Verdict.FAIL]
