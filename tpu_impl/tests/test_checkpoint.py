"""A resumed run is the uninterrupted run bit for bit; an unfinished save is never taken for a whole one."""

from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from tunix.sft.checkpoint_manager import CheckpointManager

from conformance.contract.recipe import load_recipe
from tpu_impl import checkpoint
from tpu_impl.checkpoint import resume_equality
from tpu_impl.environment import prepare_process
from tpu_impl.saver import PARTIAL, arrays_of, checkpointing, load_state, save_state, state_of
from tpu_impl.session import Session
from tpu_impl.train import Trainer

TINY = Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml"
ELEMENTS = 1 << 12


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    prepare_process()
    with Session(load_recipe(TINY), lambda line: None) as session:
        yield session


def test_a_resume_with_dropout_is_the_uninterrupted_run(session):
    found = resume_equality(session, 0.1)
    assert found.equal_loss and found.equal_adapters and found.equal_moments and found.equal_position


def test_a_lost_data_position_is_told_apart(session):
    """Control: the loader starts again at its first row."""
    metadata = Trainer.custom_checkpoint_metadata

    def restarted(trainer):
        return {"data": metadata(trainer)["data"] | {"next_index": 0}}

    with mock.patch.object(Trainer, "custom_checkpoint_metadata", restarted):
        found = resume_equality(session, 0.1)
    assert not (found.equal_loss or found.equal_adapters or found.equal_moments or found.equal_position)


@pytest.fixture
def saved(tmp_path) -> Path:
    """A folder with one whole save, of step 1."""
    manager = CheckpointManager(str(tmp_path), checkpointing(1))
    save_state(manager, 1, state_of(1, ELEMENTS))
    manager.close()
    return tmp_path


def restores(folder: Path, step: int) -> bool:
    found, state = load_state(folder, ELEMENTS)
    mine, theirs = arrays_of(state_of(step, ELEMENTS)), arrays_of(state)
    return found == step and all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_a_begun_save_is_passed_over(saved):
    (saved / PARTIAL.replace("*", "2", 1).replace("*", "")).mkdir()
    assert any(saved.glob(PARTIAL)) and restores(saved, 1)


def test_another_steps_state_is_told_apart(saved):
    """Control: what was saved at step 1 is not what step 2 would have saved."""
    assert not restores(saved, 2)


def test_a_kill_is_judged_by_what_the_saver_wrote(tmp_path):
    """A killed saver's last whole save restores. Control: held to another state, it does not."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tpu_impl.saver"])
    found = []
    for attempt, expected in enumerate((state_of, lambda step, elements: state_of(step + 1, elements))):
        (run := tmp_path / str(attempt)).mkdir()
        with mock.patch.object(checkpoint, "state_of", expected):
            found.append(checkpoint._kill(context, run, checkpoint.LEAST_ELEMENTS, attempt, 1.0, 100.0))
    assert [kill.equal for kill in found] == [True, False]
