"""The recorder attaches to a trainer that knows nothing of it."""

import pytest
from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from conformance.contract.bundle import Bundle
from conformance.contract.run_record import UNKNOWN
from reference.adapter import lora_config
from reference.recorder import Recorder


def user_trainer(session, messages: list, out) -> SFTTrainer:
    """What a user's script makes: TRL's own order, schedule and adapter."""
    args = SFTConfig(
        output_dir=str(out), per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=2, use_cpu=True,
        bf16=False, assistant_only_loss=True, max_length=1024, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    return SFTTrainer(
        model=session.base(), args=args, train_dataset=Dataset.from_list([{"messages": turns} for turns in messages]),
        processing_class=AutoTokenizer.from_pretrained(session.recipe.checkpoint_dir), peft_config=lora_config(session.recipe),
    )  # fmt: skip


def test_three_lines_record_a_users_trainer(session, tmp_path):
    trainer = user_trainer(session, [row.messages for row in session.plan.rows[:12]], tmp_path / "run")
    Recorder(tmp_path / "bundle", session.recipe).attach(trainer)
    trainer.train()
    bundle = Bundle(tmp_path / "bundle")
    consumed = bundle.lines("batches", "consumed")
    assert [(line["step"], line["micro"]) for line in consumed] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    rows = [row for line in consumed for row in line["rows"]]
    assert len(set(rows)) == 8 and set(rows) <= {row.row for row in session.plan.rows[:12]}
    steps = bundle.lines("trajectory", "step")
    logged = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    assert steps[1]["grad_norm"] == pytest.approx(logged[-1]["grad_norm"]) if logged else steps[1]["grad_norm"] > 0
    assert len(bundle.arrays("trajectory", "f32/final/")) == len(session.initial)


def test_a_foreign_row_is_not_taken_for_one_of_the_plan(session, tmp_path):
    """Control: a row with one other word."""
    messages = [row.messages for row in session.plan.rows[:4]]
    messages[0] = [messages[0][0] | {"content": "Write a poem."}, *messages[0][1:]]
    trainer = user_trainer(session, messages, tmp_path / "run")
    recorder = Recorder(None, session.recipe, plan=session.plan).attach(trainer)
    trainer.args.max_steps = 1
    trainer.train()
    assert sorted(row for one in recorder.consumed for row in one.rows)[0] == UNKNOWN
