"""Who records what: each fault has one recorder, with the recipe that it is planted in."""

import json
from pathlib import Path

from conformance.contract.faults import RECORDERS, REFUSALS, of_stack, read_faults
from conformance.faults.grounds import folder_of_ground, needed
from conformance.faults.recordings import recordings_of
from conformance.faults.run import _command, folder_of, shares

FAULTS = of_stack(read_faults(), *RECORDERS, "server")  # the client's are judged where they are planted
JOBS = 2
OUT = Path("out")


def test_every_fault_has_one_recorder():
    found = [fault for share in shares(FAULTS, JOBS).values() for fault in share]
    assert sorted(fault.id for fault in found) == sorted(fault.id for fault in FAULTS)


def test_faults_on_meshes_have_a_recorder_and_a_recipe_of_their_own():
    for fault in FAULTS:
        folder = folder_of(OUT, FAULTS, fault, JOBS).name
        assert folder.endswith("meshes") == fault.on_meshes
        assert fault.stack in folder
    assert folder_of_ground(OUT, True) != folder_of_ground(OUT, False)


def test_only_the_recipes_that_are_needed_are_recorded():
    """Control: without a fault on meshes nobody waits for their clean pair."""
    assert needed(FAULTS) == [False, True]
    assert needed(tuple(fault for fault in FAULTS if not fault.on_meshes)) == [False]


def test_some_faults_are_recorded_where_all_are():
    for fault in FAULTS:
        assert folder_of(OUT, (fault,), fault, JOBS) == folder_of(OUT, FAULTS, fault, JOBS)


def test_recording_some_again_keeps_the_others(tmp_path):
    """Control: what is recorded again does go, its refusal too."""
    name, share = next(iter(shares(FAULTS, JOBS).items()))
    again, other = share[:2]
    recordings = recordings_of(tmp_path, name)
    for fault in share[:2]:
        (recordings / fault.id).mkdir(parents=True)
    lines = [json.dumps({"id": fault.id, "rung": "logits", "error": "refused"}) + "\n" for fault in share[:2]]
    (recordings / REFUSALS).write_text("".join(lines))
    _command(tmp_path, name, [again])
    assert [path.name for path in recordings.iterdir() if path.is_dir()] == [other.id]
    assert (recordings / REFUSALS).read_text() == lines[1]
