"""What a small port needs around its model, in numpy: hub weights, padded micro-batches, and the lines of *tokens* and *batches*.

A port whose own loader, tokeniser or collator could be wrong uses that one and not these: a rung shows what was recorded.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.digest import sha256_bytes, tensor_bytes
from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, Plan
from conformance.contract.run_record import Consumed, StepLine
from conformance.contract.tokens import ChatTokenizer, Tokens
from conformance.contract.topology import hub_name, read_topology

SPLITS = (1, 2, 4)
FIRST_STEPS = 3


def read_weights(folder: Path) -> Tensors:
    """The language model's tensors by hub name, whatever prefix the files use; a wrong checkpoint is refused by the tensor's name."""
    expected, tensors = read_topology(folder).tensors, read_tensors(folder)
    found = {hub_name(name): value for name, value in tensors.items()}
    odd = sorted(set(found) ^ set(expected)) or sorted(name for name, shape in expected.items() if found[name].shape != shape)
    if odd:
        has, wants = (list(np.shape(found[odd[0]])) if odd[0] in found else "nothing"), list(expected.get(odd[0], ())) or "nothing"
        raise ContractError(f"checkpoint {folder}: tensor {odd[0]} is {has}; its config.json wants {wants} ({len(odd)} are wrong)")
    return found


@dataclass(frozen=True, slots=True)
class Padded:
    """A micro-batch [B,T]: ids int64, loss mask and attention mask uint8; `rows` are row numbers, the empty row has no token."""

    rows: tuple[int, ...]
    ids: np.ndarray
    loss_mask: np.ndarray
    attended: np.ndarray


def padded(plan: Plan, rows: tuple[int, ...], *, width: int | None = None, side: str = "right") -> Padded:
    """`width` in tokens, None for the longest row; `side` is "right" or "left"."""
    kept = [plan.by_row.get(row) for row in rows]  # None: the empty row
    width = width or max((len(one.ids) for one in kept if one), default=1)
    ids = np.full((len(rows), width), plan.pad_id, np.int64)
    loss_mask, attended = (np.zeros((len(rows), width), np.uint8) for _ in range(2))
    for index, one in enumerate(kept):
        if one:
            place = slice(len(one.ids)) if side == "right" else slice(width - len(one.ids), width)
            ids[index, place], loss_mask[index, place], attended[index, place] = one.ids, one.loss_mask, 1
    return Padded(tuple(rows), ids, loss_mask, attended)


def consumed(batch: Padded, step: int, micro: int, shard: int) -> Consumed:
    """What a micro-batch is worth a line of: counts and digests of each row without its padding."""
    seen = batch.attended == 1
    ids = [row[s].astype(np.int32) for row, s in zip(batch.ids, seen, strict=True)]
    masks = [row[s].astype(np.uint8) for row, s in zip(batch.loss_mask, seen, strict=True)]
    side = "none" if seen.all() else "right" if seen[[row != EMPTY for row in batch.rows], 0].all() else "left"
    return Consumed(
        step, micro, shard, list(batch.rows), tokens=[len(row) for row in ids], loss_tokens=[int(mask.sum()) for mask in masks],
        ids_sha256=[sha256_bytes(tensor_bytes(row)) for row in ids], mask_sha256=[sha256_bytes(tensor_bytes(m)) for m in masks],
        width=batch.ids.shape[1], pad_side=side, attended=seen.sum(1).tolist(),
    )  # fmt: skip


def step_line(parts: list[Consumed], loss: float, grad_norm: float, learning_rate: float) -> StepLine:
    """One optimizer step from its micro-batches."""
    rows = sum(row != EMPTY for part in parts for row in part.rows)
    tokens, targets = (sum(sum(getattr(part, key)) for part in parts) for key in ("tokens", "loss_tokens"))
    return StepLine(parts[0].step, loss, grad_norm, learning_rate, rows, tokens, targets)


def write_token_rows(writer: BundleWriter, rows: dict[int, Tokens], unmasked: dict[int, Tokens]) -> None:
    """The rows of the rung *tokens* by number (of ids and loss_mask); `unmasked`: with loss over all but BOS, the control."""
    numbers = sorted(rows)
    writer.array("tokens", "rows", np.asarray(numbers, np.int32))
    writer.array("tokens", "offsets", np.cumsum([0, *(len(rows[row].ids) for row in numbers)], dtype=np.int64))
    writer.array("tokens", "ids", np.concatenate([rows[row].ids for row in numbers]))
    writer.array("tokens", "loss_mask", np.concatenate([rows[row].loss_mask for row in numbers]))
    writer.array("tokens", "control.unmasked/loss_mask", np.concatenate([unmasked[row].loss_mask for row in numbers]))


def write_tokens(writer: BundleWriter, tokenizer: ChatTokenizer, rows: dict[int, Tokens], unmasked: dict[int, Tokens]) -> None:
    """The whole rung *tokens* of a port that uses the contract's tokenizer."""
    write_token_rows(writer, rows, unmasked)
    facts = {"template_sha256": tokenizer.template_sha256, "bos_id": tokenizer.bos_id, "pad_id": tokenizer.pad_id}
    writer.line("tokens", "facts", eos_ids=list(tokenizer.eos_ids), **facts)


def write_variants(writer: BundleWriter, plan: Plan, loader: Callable[[int, int], Iterable[list[Padded]]]) -> None:
    """`loader(accumulation, shards)` gives the micro-batches of every step under that split of the effective batch."""
    chosen = {*range(FIRST_STEPS), plan.total_steps - 1}
    splits = [(a, s) for a in SPLITS for s in SPLITS if plan.recipe.batch.effective % (a * s) == 0]
    for accumulation, shards in splits:
        for step, batches in enumerate(loader(accumulation, shards)):
            if step in chosen:
                rows = sorted(row for batch in batches for row in batch.rows if row != EMPTY)
                counts = {"tokens": "attended", "loss_tokens": "loss_mask"}
                sums = {key: sum(int(getattr(batch, name).sum()) for batch in batches) for key, name in counts.items()}
                writer.line("batches", "variants", accumulation=accumulation, shards=shards, step=step, rows=rows, **sums)
