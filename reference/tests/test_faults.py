"""The reference's plants: each finds its place in the source and leaves nothing behind; what TRL does by itself shows."""

import pytest

from conformance.contract.faults import of_stack, read_faults
from conformance.contract.seams import function_at
from reference.checkpoint import restored
from reference.data import tokenise
from reference.faults.apart import KNOWN
from reference.faults.parts import PARTS
from reference.faults.plants import EDITS, planted
from reference.faults.saving import saver_with
from reference.saver import save_state, state_of

FAULTS = {fault.id: fault for fault in of_stack(read_faults(), "reference")}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_plant_is_there_and_gone(fault):
    functions = [function_at(edit.place) for edit in EDITS[fault.plant]]
    before = [function.__code__ for function in functions]
    with planted(fault):
        assert all(function.__code__ is not code for function, code in zip(functions, before, strict=True))
    assert [function.__code__ for function in functions] == before


def test_every_part_and_plant_of_the_catalogue_is_known_and_used():
    parts = {part for fault in FAULTS.values() for part in fault.records}
    assert set(PARTS) <= parts <= KNOWN
    assert {fault.plant for fault in FAULTS.values()} == set(EDITS)


def test_a_plant_acts(session):
    """Control: under TRL's default every token of a row is a target, but for BOS."""
    with planted(FAULTS["reference-loss-over-all"]):
        rows = tokenise(session.plan, session.base(), session.tokenizer)
    assert all(row.loss_mask[1:].all() for row in rows.values())
    assert not all(row.loss_mask[1:].all() for row in session.rows.values())


def test_a_save_that_does_not_load_is_lost(tmp_path):
    """In place, the newest folder may be half a save; beside and renamed it is the last whole one (control)."""
    save_state(tmp_path / "checkpoint-1", state_of(1, 100))
    assert restored(tmp_path, 100) == (1, True)
    saver_with("saved in place", None, save_state, tmp_path / "checkpoint-2", state_of(2, 100))
    (tmp_path / "checkpoint-2" / "optimizer.pt").unlink()  # as a kill would leave it
    assert restored(tmp_path, 100) == (2, False)
