"""The catalogue is well formed: every entry can be planted, recorded and judged."""

from collections import Counter
from dataclasses import replace

import pytest

from conformance.checks import checks
from conformance.contract.errors import ContractError
from conformance.contract.faults import BENCH, MESHES, RECORDERS, REFUSED, chosen, of_stack, read_faults
from conformance.contract.schema import RUNGS
from conformance.contract.serving.recorder import RUNG
from conformance.faults.grounds import RECORDED
from conformance.faults.run import a_third

FAULTS = read_faults()
LADDER = tuple(fault for fault in FAULTS if fault.stack != "client")
CHECKS = checks()
LEAST = 60


def test_ids_are_unique():
    assert {name for name, times in Counter(fault.id for fault in FAULTS).items() if times > 1} == set()


def test_there_are_many_and_every_rung_has_some():
    assert len(FAULTS) >= LEAST
    assert {fault.rung for fault in of_stack(FAULTS, *RECORDERS)} == {*RECORDED, MESHES}
    assert {fault.stack: fault.rung for fault in of_stack(FAULTS, "server", "client")} == {"server": RUNG, "client": BENCH}


@pytest.mark.parametrize("fault", LADDER, ids=lambda fault: fault.id)
def test_the_check_is_one_of_the_rungs(fault):
    assert fault.check == REFUSED or CHECKS[fault.check][0] == fault.rung
    assert not CHECKS.get(fault.check) or not (CHECKS[fault.check][1].__doc__ or "").startswith("Control") or fault.rung == "trajectory"


@pytest.mark.parametrize("fault", LADDER, ids=lambda fault: fault.id)
def test_parts_are_recorded_in_the_ladders_order(fault):
    """The fault's own rung is among those recorded anew."""
    rungs = [part.split()[0] for part in fault.records]
    assert rungs == sorted(rungs, key=RUNGS.index)
    assert fault.rung in rungs


def test_the_third_that_every_test_run_takes_has_some_of_every_rung():
    third = a_third(FAULTS)
    assert {fault.rung for fault in third} == {fault.rung for fault in FAULTS}
    assert len(third) >= len(FAULTS) / 3
    assert not any(fault.slow for fault in third)


def test_where_the_quick_ones_are_too_few_the_others_are_taken():
    slow = tuple(replace(fault, slow=True) for fault in FAULTS)
    assert len(a_third(slow)) == len(a_third(FAULTS))


def test_an_unknown_id_is_refused():
    with pytest.raises(ContractError, match="no-such-fault"):
        chosen(FAULTS, ("no-such-fault",))
