"""One optimizer step is the same step however its rows are split, and with gradient checkpointing."""

import numpy as np
import pytest

from conformance.contract.draws import Tensors
from reference.probe import probe
from reference.record_training import warm_batches
from reference.session import Session
from reference.step import StepGradients, step_gradients
from reference.train import Run, make_trainer

# Other orders of float32 summation: tolerances.toml's reference_self, measured 1e-6.
SAME = 2e-5


def gradients_of(session: Session, adapter: Tensors, run: Run) -> StepGradients:
    """The warm step's rows, split as `run` says, in a trainer of its own."""
    return step_gradients(session.trainer(adapter, run), warm_batches(session, run.accumulation), run.precision)


@pytest.fixture(scope="module")
def whole(session) -> StepGradients:
    """The warm step without accumulation."""
    return gradients_of(session, session.warm.adapter, Run(accumulation=1))


def worst(one: StepGradients, other: StepGradients) -> float:
    """Largest relative difference over loss and every tensor's gradient."""
    errors = [np.linalg.norm(one.gradients[k] - v) / np.linalg.norm(v) for k, v in other.gradients.items()]
    return float(max(abs(one.loss / other.loss - 1), *errors))


@pytest.mark.parametrize("accumulation", [2, 4])
def test_accumulation_gives_the_whole_step(session, whole, accumulation):
    split = gradients_of(session, session.warm.adapter, Run(accumulation=accumulation))
    assert worst(split, whole) < SAME


def test_the_stock_mean_of_means_is_another_step(session, whole, tmp_path):
    """Control, and a stock defect: Gemma4ForConditionalGeneration keeps TRL from counting tokens."""
    model, run = session.adapted(session.warm.adapter), Run(accumulation=4)
    trainer = make_trainer(model, session.plan, session.rows, session.tokenizer, run, tmp_path, token_weighted=False)
    assert worst(step_gradients(trainer, warm_batches(session, 4)), whole) > 100 * SAME


def test_checkpointing_changes_no_bit(session, whole):
    again = gradients_of(session, session.warm.adapter, Run(accumulation=1, checkpointing=True))
    assert again.loss == whole.loss
    assert all(np.array_equal(again.gradients[name], value) for name, value in whole.gradients.items())


def test_a_row_alone_is_the_row_in_a_batch(session):
    probes, model = session.plan.probes, session.adapted(session.warm.adapter)
    batch = probe(model, probes.ids, probes.attention, "f32").logits_PTV
    for row, length in enumerate(probes.attention.sum(1)):
        alone = probe(model, probes.ids[row : row + 1, :length], probes.attention[row : row + 1, :length], "f32").logits_PTV
        assert np.abs(alone[0] - batch[row, :length]).max() < 2e-4
    assert np.abs(batch[0, :10] - batch[1, :10]).max() > 1  # control: rows differ
