"""A third of the client's and the sweep's faults, played against the scripted server: each is seen where the catalogue says."""

import pytest

from conformance.contract.faults import BENCH, REFUSED, of_stack, read_faults
from conformance.contract.seams import function_at
from conformance.faults.run import a_third
from conformance.faults.serving.client import theatre
from conformance.faults.serving.plants import CLIENT, EDITS, SWEEP, planted
from conformance.faults.serving.scenes import SCENES

FAULTS = of_stack(read_faults(), "client")
THIRD = a_third(FAULTS)


@pytest.fixture(scope="module")
def stage():
    with theatre() as here:
        yield here


def test_without_a_fault_nothing_is_seen(stage):
    """Control: the same scenes, so what is seen under a fault is seen for it."""
    assert stage.alarms(THIRD) == []


@pytest.mark.parametrize("fault", THIRD, ids=lambda fault: fault.id)
def test_a_planted_fault_is_seen_by_its_own_check(fault, stage):
    outcome = stage.outcome(fault)
    assert (outcome.rung, outcome.check) == (BENCH, fault.check), outcome.where
    assert outcome.where
    assert outcome.check == REFUSED or outcome.findings


def test_every_plant_and_scene_is_used():
    assert {fault.plant for fault in FAULTS} == set(CLIENT | SWEEP)
    assert {scene for fault in FAULTS for scene in fault.records} == set(SCENES)


@pytest.mark.parametrize("fault", of_stack(read_faults(), "client", "server"), ids=lambda fault: fault.id)
def test_a_plant_is_there_and_gone(fault):
    functions = [function_at(edit.place) for edit in EDITS[fault.plant]]
    before = [function.__code__ for function in functions]
    with planted(fault):
        assert all(function.__code__ is not code for function, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before
