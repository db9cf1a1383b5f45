"""Who records what: each fault has one recorder, with the recipe that it is planted in."""

import json
from pathlib import Path

import pytest

from conformance.contract.errors import ContractError
from conformance.contract.faults import RECORDERS, REFUSALS, of_stack, read_faults
from conformance.faults.grounds import folder_of_ground, needed
from conformance.faults.recordings import folder_of, recordings_of
from conformance.faults.run import _recorder, shares

FAULTS = of_stack(read_faults(), *RECORDERS, "server")  # the client's are judged where they are planted
JOBS = 2
OUT = Path("out")


def test_every_fault_has_one_recorder():
    found = [fault for share in shares(FAULTS, JOBS).values() for fault in share]
    assert sorted(fault.id for fault in found) == sorted(fault.id for fault in FAULTS)


def test_faults_on_meshes_have_a_recorder_and_a_recipe_of_their_own():
    for name, share in shares(FAULTS, JOBS).items():
        for fault in share:
            assert name.endswith("meshes") == fault.on_meshes
            assert name.startswith(fault.stack)
    assert folder_of_ground(OUT, True) != folder_of_ground(OUT, False)


def test_the_recorders_of_the_port_have_as_much_to_do():
    ours = of_stack(FAULTS, "port")[:7]
    assert [len(share) for share in shares(ours, JOBS).values()] == [4, 3]


def test_only_the_recipes_that_are_needed_are_recorded():
    """Control: without a fault on meshes nobody waits for their clean pair."""
    assert needed(FAULTS) == [False, True]
    assert needed(tuple(fault for fault in FAULTS if not fault.on_meshes)) == [False]


def test_recording_some_again_keeps_the_others(tmp_path):
    """By whichever recorder they were recorded. Control: what is recorded again does go, its refusal too."""
    name, share = next(iter(shares(FAULTS, JOBS).items()))
    again, other = share[:2]
    recordings = recordings_of(tmp_path, "port 1")
    for fault in share[:2]:
        (recordings / fault.id).mkdir(parents=True)
    lines = [json.dumps({"id": fault.id, "rung": "logits", "error": "refused"}) + "\n" for fault in share[:2]]
    (recordings / REFUSALS).write_text("".join(lines))
    _recorder(tmp_path, name, (again,))
    assert folder_of(tmp_path, other) == recordings
    with pytest.raises(ContractError, match=f"{again.id} was not recorded"):
        folder_of(tmp_path, again)
    assert (recordings / REFUSALS).read_text() == lines[1]
