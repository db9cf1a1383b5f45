"""A third of the catalogue, planted and judged: each fault is seen where the catalogue says, and the clean port nowhere."""

import pytest

from conformance.contract.faults import RECORDERS, of_stack, read_faults
from conformance.faults.grounds import grounds
from conformance.faults.judging import alarms
from conformance.faults.run import a_third, judged, record

JOBS = 2
FAULTS = a_third(of_stack(read_faults(), *RECORDERS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def clean(folder):
    return grounds(folder, FAULTS, jobs=JOBS)


@pytest.fixture(scope="module")
def recorded(folder, clean):
    record(folder, FAULTS, JOBS)
    return folder


def test_without_a_fault_nothing_fails(clean):
    """Control: the ladder passes on the clean pairs, so what fails under a fault fails for it."""
    assert [alarm for ground in clean.values() for alarm in alarms(ground.pair, ground.given)] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_planted_fault_is_caught_at_its_own_rung(fault, clean, recorded):
    outcome = judged(fault, clean, recorded)
    assert (outcome.rung, outcome.check) == (fault.rung, fault.check), outcome.where
