"""One optimizer step is the same step however its rows are split; a resumed run is the uninterrupted one."""

import dataclasses

import numpy as np
import optax
import pytest
from tunix.sft import peft_trainer

from conformance.contract.bundle import Bundle
from tpu_impl.checkpoint import resumes
from tpu_impl.corrections import ALL
from tpu_impl.data import arrange
from tpu_impl.optimizer import AdamState, part_of
from tpu_impl.record_training import warm_batches
from tpu_impl.recorder import Recorder
from tpu_impl.step import StepGradients, named, step_gradients, token_loss
from tpu_impl.train import Run, run_data

# Other orders of float32 summation: tolerances.toml's reference_self, measured 1e-6.
SAME = 2e-5


@pytest.fixture(scope="module")
def model(session):
    return session.adapted(session.warm.adapter)


@pytest.fixture(scope="module")
def whole(session, model) -> StepGradients:
    """The warm step as the recipe splits it."""
    return step_gradients(model, warm_batches(session))


def worst(one: StepGradients, other: StepGradients) -> float:
    """Largest relative difference over loss and every tensor's gradient."""
    errors = [np.linalg.norm(one.gradients[k] - v) / np.linalg.norm(v) for k, v in other.gradients.items()]
    return float(max(abs(one.loss / other.loss - 1), *errors))


def test_accumulation_gives_the_same_step(session, model, whole):
    assert worst(step_gradients(model, warm_batches(session, 4)), whole) < SAME


def test_the_stock_mean_of_means_is_another_step(session, model, whole):
    """Control, and a stock defect: `optax.MultiSteps` averages the micro-batches' means, ragged as they are."""
    stock = dataclasses.replace(ALL, token_weighted=False)
    batches = list(arrange(session.rows, [session.plan.warm_rows], session.plan, corrections=stock))
    assert worst(step_gradients(model, batches), whole) > 100 * SAME


def test_only_the_adapter_moves_under_rematerialisation(session):
    trainer = session.trainer(session.initial, Run(remat="decoder"))
    moments = named(trainer.model, part_of(trainer.optimizer.opt_state, AdamState).m)
    assert moments.keys() == session.initial.keys()


def test_a_resume_with_dropout_is_the_uninterrupted_run(session):
    found = list(resumes(session, 0.1))
    assert [(one.save, one.saved_step) for one in found] == [("interval", 3), ("last", 5)]
    assert all(one.equal_loss and one.equal_adapters and one.equal_moments and one.equal_position for one in found)


def test_another_dropout_seed_is_told_apart(session):
    """Control: the masks follow from the seed."""
    runs = [session.recorded_run(session.initial, Run(steps=2, dropout=0.1, seed=seed), label="")[0] for seed in (0, 1)]
    assert runs[0].steps[0].grad_norm != runs[1].steps[0].grad_norm


def test_three_lines_record_a_users_trainer(session, tmp_path):
    """A stock PeftTrainer with optax's own AdamW, whose learning rate the recorder reads from `inject_hyperparams`."""
    optimizer = optax.inject_hyperparams(optax.adamw)(1e-3)
    config = peft_trainer.TrainingConfig(eval_every_n_steps=10**9, max_steps=2, gradient_accumulation_steps=2)
    trainer = peft_trainer.PeftTrainer(session.adapted(session.initial), optimizer, config).with_loss_fn(token_loss)
    trainer.with_gen_model_input_fn(lambda batch: batch)
    Recorder(tmp_path / "bundle", session.recipe).attach(trainer)
    trainer.train(run_data(session.plan, session.rows, Run(steps=2)))
    bundle = Bundle(tmp_path / "bundle")
    consumed = bundle.lines("batches", "consumed")
    assert [line["rows"] for line in consumed] == [list(micro[0]) for step in session.plan.steps[:2] for micro in step.micros]
    assert [line["learning_rate"] for line in bundle.lines("trajectory", "step")] == [pytest.approx(1e-3)] * 2
