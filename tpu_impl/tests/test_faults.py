"""Plants: each finds its place in the source and leaves nothing behind; every correction is in the catalogue."""

import dataclasses

import numpy as np
import pytest
from tunix.sft.checkpoint_manager import CheckpointManager

from conformance.contract.errors import ContractError
from conformance.contract.faults import of_stack, read_faults
from conformance.contract.seams import Edit, edited, function_at
from tpu_impl import data
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.faults.apart import KNOWN
from tpu_impl.faults.plants import EDITS, PLANTS, planted
from tpu_impl.faults.recording import record_faults
from tpu_impl.faults.saving import saver_with
from tpu_impl.saver import checkpointing, restored, save_state, state_of

FAULTS = of_stack(read_faults(), "port")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_plant_is_there_and_gone(fault):
    """While planted another code runs or a correction is off; afterwards all is as before."""
    functions = [function_at(edit.place) for edit in EDITS.get(fault.plant, ())]
    before = [function.__code__ for function in functions]
    with planted(fault):
        changed = [function.__code__ is not code for function, code in zip(functions, before, strict=True)]
        assert all(changed) if functions else dataclasses.replace(ALL) != Corrections()
    assert [function.__code__ for function in functions] == before
    assert Corrections() == ALL


def test_whoever_imported_a_function_runs_the_planted_one():
    from tpu_impl.data import positions_of

    with edited((Edit("tpu_impl.data:positions_of", "- 1, 0)", "- 1, VALUE)"),), 7.0):
        assert positions_of(np.ones((1, 2), np.bool_)).tolist() == [[7, 7]]
    assert data.positions_of(np.ones((1, 2), np.bool_)).tolist() == [[0, 1]]


def test_an_edit_that_finds_nothing_is_an_error():
    """Control: a library that has changed under a plant is noticed."""
    with pytest.raises(AssertionError, match="there 0 times"), edited((Edit("tpu_impl.data:collate", "no such words", ""),), None):
        pass


def test_every_part_and_plant_of_the_catalogue_is_known():
    assert {part for fault in FAULTS for part in fault.records} <= KNOWN
    assert {fault.plant for fault in FAULTS} <= set(PLANTS)


def test_every_correction_is_in_the_catalogue():
    off = {fault.correction for fault in FAULTS} - {None}
    assert off == {field.name for field in dataclasses.fields(Corrections)}


def test_an_unknown_plant_is_refused(session, tmp_path):
    fault = dataclasses.replace(FAULTS[0], plant="no such plant")
    with pytest.raises(ContractError, match="no such plant"):
        record_faults(session.recipe, tmp_path, [fault], session.progress)


def test_a_fault_of_reading_the_peers_files_needs_them(session, tmp_path):
    fault = next(fault for fault in FAULTS if "merge exchange" in fault.records)
    with pytest.raises(ContractError, match="--peer"):
        record_faults(session.recipe, tmp_path, [fault], session.progress)


def test_a_saver_process_has_the_fault_and_a_step_that_does_not_load_is_lost(tmp_path):
    """A step that is not whole is not restored (control), unless the fault is planted in the process that restores."""
    manager = CheckpointManager(str(tmp_path), checkpointing(1))
    save_state(manager, 1, state_of(1, 100))
    manager.close()
    (tmp_path / "2.orbax-checkpoint-tmp-1" / "model_params").mkdir(parents=True)
    assert restored(str(tmp_path), 100) == (1, True)
    assert saver_with("unfinished step restored", None, restored, str(tmp_path), 100) == (0, False)
