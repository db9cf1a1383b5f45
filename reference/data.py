"""Rows to token ids and loss masks by TRL's own path, and the order in which the trainer takes them."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, Plan, Step
from reference.processes import processes

IGNORED = -100  # TRL's label of a token that is no target


@dataclass(frozen=True, slots=True)
class TokenisedRow:
    """One row as TRL made it: ids int32 [n], loss_mask uint8 [n] (1 where the token is a target)."""

    row: int
    ids: np.ndarray
    loss_mask: np.ndarray

    @property
    def example(self) -> dict[str, list[int]]:
        """What TRL's collator takes."""
        return {"input_ids": self.ids.tolist(), "labels": np.where(self.loss_mask == 1, self.ids, IGNORED).tolist()}


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def load_rows(plan: Plan) -> Dataset:
    """The kept rows in ascending row number, as TRL's conversational data set."""
    return Dataset.from_list([{"row": row.row, "messages": row.messages} for row in plan.rows])


def tokenise(
    plan: Plan, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss_scope: str | None = None
) -> dict[int, TokenisedRow]:
    """Every kept row through SFTTrainer's own preparation (chat template, assistant mask, truncation), by row number."""
    scope = loss_scope or plan.recipe.data.loss_scope
    with TemporaryDirectory() as out:  # SFTTrainer makes its output folder at once
        args = SFTConfig(
            output_dir=out, max_length=plan.recipe.data.max_tokens, assistant_only_loss=scope == "assistant",
            # The first trainer of a process decides the backend of all: on GPUs gloo would carry what nccl should.
            use_cpu=processes() == 1 or not torch.cuda.is_available(), bf16=False, report_to=[],
        )  # fmt: skip
        trainer = SFTTrainer(model=model, args=args, train_dataset=load_rows(plan), processing_class=tokenizer)
        prepared = trainer.train_dataset
    rows = {entry["row"]: _tokenised(entry) for entry in prepared}
    # TRL drops rows that truncation leaves without a target, and says nothing.
    lost = sorted(set(plan.by_row) - set(rows))
    if lost:
        raise ContractError(f"TRL dropped row {lost[0]} ({len(lost)} in all), which the plan keeps")
    return rows


def _tokenised(entry: dict) -> TokenisedRow:
    mask = np.asarray(entry["labels"], np.int64) != IGNORED
    # Without an assistant mask TRL labels BOS too, but the shift by one never scores the first token.
    mask[0] = False
    return TokenisedRow(entry["row"], np.asarray(entry["input_ids"], np.int32), mask.astype(np.uint8))


def rows_of_process(plan: Plan, accumulation: int, index: int, count: int) -> tuple[int, ...]:
    """The rows that process `index` of `count` takes, in its order."""
    steps = plan.with_batch(accumulation, count)
    return tuple(row for step in steps for micro in step.micros for row in micro[index] if row != EMPTY)


def order_of(plan: Plan, args: TrainingArguments) -> tuple[int, ...]:
    """This process's rows in order; another effective batch than the plan's is a trainer with an order of its own."""
    accumulation = args.gradient_accumulation_steps
    if args.per_device_train_batch_size * accumulation * args.world_size != plan.recipe.batch.effective:
        return plan.order
    return rows_of_process(plan, accumulation, args.process_index, args.world_size)


class RowFinder:
    """Row numbers by unpadded ids; rows of equal ids are told apart by their turn in `order`, the order of training."""

    def __init__(self, plan: Plan, order: tuple[int, ...]):
        self._rows: dict[bytes, deque[int]] = defaultdict(deque)
        for row in order:
            self._rows[plan.by_row[row].ids.tobytes()].append(row)

    def find(self, ids: np.ndarray) -> int | None:
        """None when no kept row has these int32 ids."""
        rows = self._rows.get(ids.tobytes())
        if not rows:
            return None
        rows.rotate(-1)
        return rows[-1]


def empty_row(pad_id: int) -> TokenisedRow:
    """A row of loss weight 0: TRL would drop it, so it joins after TRL's preparation."""
    return TokenisedRow(EMPTY, np.asarray([pad_id], np.int32), np.zeros(1, np.uint8))


def arrange(rows: dict[int, TokenisedRow], steps: Iterable[Step], pad_id: int) -> Dataset:
    """The rows of `steps` in the order in which a sequential sampler feeds micro-batches and shards."""
    rows = rows | {EMPTY: empty_row(pad_id)}
    numbers = [row for step in steps for micro in step.micros for shard in micro for row in shard]
    return Dataset.from_list([rows[number].example for number in numbers])


def collate(rows: list[TokenisedRow], pad_id: int, *, width: int | None = None, side: str = "right") -> dict[str, torch.Tensor]:
    """A micro-batch as TRL's collator makes it; `width` (tokens) and `side` pad it further, or on the left."""
    batch = DataCollatorForLanguageModeling(pad_token_id=pad_id)([row.example for row in rows])
    width = width or batch["input_ids"].shape[1]
    if side == "left":
        batch = {key: _roll_left(value, batch["attention_mask"]) for key, value in batch.items()}
    extra = width - batch["input_ids"].shape[1]
    fill = {"input_ids": pad_id, "labels": IGNORED, "attention_mask": 0}
    pads = (extra, 0) if side == "left" else (0, extra)
    return {key: torch.nn.functional.pad(value, pads, value=fill[key]) for key, value in batch.items()}


def _roll_left(value_BT: torch.Tensor, attention_BT: torch.Tensor) -> torch.Tensor:
    """Moves each row's right padding to its left."""
    padding = (attention_BT == 0).sum(-1).tolist()
    return torch.stack([torch.roll(row, shift) for row, shift in zip(value_BT, padding, strict=True)])


def shard_batches(dataset: Dataset, micro_batch: int, shards: int, pad_id: int) -> list[list[dict[str, torch.Tensor]]]:
    """Per shard, the micro-batches that accelerate's loader gives it: the loader alone, no process group."""
    collator = DataCollatorForLanguageModeling(pad_token_id=pad_id)
    loader = torch.utils.data.DataLoader(dataset, batch_size=micro_batch, collate_fn=collator)
    return [
        list(prepare_data_loader(loader, num_processes=shards, process_index=shard, put_on_device=False))
        for shard in range(shards)
    ]
