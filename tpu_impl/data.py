"""Rows to token ids and loss masks by the port's own path, and a grain pipeline of static-shape micro-batches."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grain
import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, Plan, PlannedRow, Step
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.sharding import current_mesh, own_rows

Batch = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class TokenisedRow:
    """One row as the port made it: ids int32 [n], loss_mask uint8 [n] (1 where the token is a target)."""

    row: int
    ids: np.ndarray
    loss_mask: np.ndarray


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch: its rows that this process takes, its number in the run, and how many targets its whole step has."""

    number: int
    rows: tuple[TokenisedRow, ...]
    accumulation: int
    step_loss_tokens: int


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def tokenise(plan: Plan, tokenizer: PreTrainedTokenizerBase, loss_scope: str | None = None) -> dict[int, TokenisedRow]:
    """Every kept row by row number: rendered to text, tokenised without special tokens, masked by character offsets."""
    scope = loss_scope or plan.recipe.data.loss_scope
    return {row.row: _tokenised(row, tokenizer, scope, plan.recipe.data.max_tokens) for row in plan.rows}


def _tokenised(row: PlannedRow, tokenizer: PreTrainedTokenizerBase, scope: str, limit: int) -> TokenisedRow:
    text = tokenizer.apply_chat_template(row.messages, tokenize=False)
    # The template writes BOS; add_special_tokens would put a second one before it.
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = np.asarray(encoding["input_ids"], np.int32)
    if scope == "all":
        mask = ids != tokenizer.bos_token_id
    else:
        spans = _answer_spans(row, tokenizer, text)
        mask = np.asarray([any(a <= start and end <= b for a, b in spans) for start, end in encoding["offset_mapping"]])
    return TokenisedRow(row.row, ids[:limit], mask[:limit].astype(np.uint8))


def _answer_spans(row: PlannedRow, tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[int, int]]:
    """Character spans [start, end) of the assistant's words and turn end, by the prefix property of the template.

    What is rendered of the turns before an answer, with the generation prompt, must be a prefix of the whole text.
    """
    spans = []
    for index, message in enumerate(row.messages):
        if message["role"] != "assistant":
            continue
        head = tokenizer.apply_chat_template(row.messages[:index], tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(row.messages[: index + 1], tokenize=False)
        if not (whole.startswith(head) and text.startswith(whole)):
            raise ContractError(f"row {row.row}: the chat template rendered up to turn {index} is no prefix of the whole text")
        spans.append((len(head), _turn_end(whole, message["content"], len(head))))
    return spans


def _turn_end(whole: str, content: str, start: int) -> int:
    """Where the answer's turn ends: the template's last visible character (what follows is the break between turns)."""
    end = len(whole.rstrip())
    return max(end, start + len(content))


def empty_row(pad_id: int) -> TokenisedRow:
    """A row of loss weight 0 that completes the last step: `optax.MultiSteps` never steps on a partial group."""
    return TokenisedRow(EMPTY, np.asarray([pad_id], np.int32), np.zeros(1, np.uint8))


def arrange(
    rows: dict[int, TokenisedRow], steps: Iterable[Step], plan: Plan, *, dropout_seed: int | None = None,
    corrections: Corrections = ALL,
) -> grain.MapDataset:  # fmt: skip
    """The micro-batches of `steps` in order, each a dict of arrays for the training step (`collate`).

    On a mesh of several processes each process gets the rows of its own devices.
    """
    rows = rows | {EMPTY: empty_row(plan.pad_id)}
    micros = list(_micro_batches(rows, steps, plan, corrections))
    return grain.MapDataset.source(micros).map(lambda micro: _batch(micro, plan, dropout_seed, corrections))


def _micro_batches(
    rows: dict[int, TokenisedRow], steps: Iterable[Step], plan: Plan, corrections: Corrections
) -> Iterable[MicroBatch]:
    for step in steps:
        targets = sum(int(rows[row].loss_mask.sum()) for row in step.rows)
        micros = [tuple(rows[row] for shard in micro for row in shard) for micro in step.micros]
        if not corrections.full_last_step and EMPTY in (row.row for micro in micros for row in micro):
            return  # stock: a partial group is accumulated, and never stepped on
        for index, micro in enumerate(micros):
            own = own_rows(len(micro), current_mesh()) if corrections.whole_rows else range(len(micro))
            yield MicroBatch(step.index * len(micros) + index, tuple(micro[row] for row in own), len(micros), targets)


def _batch(micro: MicroBatch, plan: Plan, dropout_seed: int | None, corrections: Corrections) -> Batch:
    batch = collate(list(micro.rows), plan.pad_id, width=plan.width)
    # MultiSteps averages over micro-batches. Stock weighs each by its own mean; the recipe divides by the step's tokens.
    own_targets = max(1, int(batch["loss_weight"].sum()))
    weight = micro.accumulation / micro.step_loss_tokens if corrections.token_weighted else 1 / own_targets
    batch["loss_weight"] *= np.float32(weight)
    if dropout_seed is not None:
        batch |= {"dropout_seed": np.uint32(dropout_seed), "dropout_step": np.uint32(micro.number)}
    return batch


def collate(rows: list[TokenisedRow], pad_id: int, *, width: int | None = None, side: str = "right") -> Batch:
    """Arrays [B,T]: input_tokens int32, attended bool (False on padding), positions int32, loss_weight float32 (the loss mask).

    `width` None is the longest row's. An empty row is all padding.
    """
    width = width or max(len(row.ids) for row in rows)
    batch = {
        "input_tokens": np.full((len(rows), width), pad_id, np.int32),
        "attended": np.zeros((len(rows), width), np.bool_),
        "loss_weight": np.zeros((len(rows), width), np.float32),
    }
    for index, row in enumerate(rows):
        place = slice(width - len(row.ids), width) if side == "left" else slice(len(row.ids))
        batch["input_tokens"][index, place] = row.ids
        batch["attended"][index, place] = row.row != EMPTY
        batch["loss_weight"][index, place] = row.loss_mask
    return batch | {"positions": positions_of(batch["attended"])}


def positions_of(attended_BT: np.ndarray) -> np.ndarray:
    """int32 [B,T]: 0 at the first token that is attended, whichever side the padding is on."""
    return np.maximum(np.cumsum(attended_BT, -1, dtype=np.int32) - 1, 0)
