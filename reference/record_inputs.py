"""Records the rungs *tokens* and *batches*."""

import numpy as np
import torch

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_bytes
from conformance.contract.kit import write_token_rows
from reference.data import RowFinder, arrange, collate, shard_batches, tokenise
from reference.oracle import arithmetic
from reference.session import Session
from reference.train import Run

SPLITS = (1, 2, 4)
FIRST_STEPS = 3


def record_tokens(session: Session, writer: BundleWriter) -> None:
    unmasked = tokenise(session.plan, session.base(), session.tokenizer, loss_scope="all")
    write_token_rows(writer, session.rows, unmasked)
    tokenizer = session.tokenizer
    # `eos_ids` end a generation; the tokenizer's own eos_token is only the first of them.
    eos_ids = session.base().generation_config.eos_token_id
    writer.line(
        "tokens", "facts", template_sha256=sha256_bytes(tokenizer.chat_template.encode()), bos_id=tokenizer.bos_token_id,
        eos_ids=eos_ids if isinstance(eos_ids, list) else [eos_ids], pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def record_batches(session: Session, writer: BundleWriter) -> None:
    session.main_run.write_batches(writer)
    for accumulation in SPLITS:
        for shards in SPLITS:
            if session.recipe.batch.effective % (accumulation * shards) == 0:
                _record_variant(session, writer, accumulation, shards)
    for precision in ("f32", "bf16"):
        _record_padding(session, writer, precision)


def _record_variant(session: Session, writer: BundleWriter, accumulation: int, shards: int) -> None:
    """The rows that accelerate's loader puts into the first steps and the last, under another split of the batch."""
    steps = session.plan.with_batch(accumulation, shards)
    micro_batch = session.recipe.batch.effective // (accumulation * shards)
    loaders = shard_batches(arrange(session.rows, steps, session.plan.pad_id), micro_batch, shards, session.plan.pad_id)
    finder, chosen = RowFinder(session.plan, session.plan.order), {*range(FIRST_STEPS), len(steps) - 1}
    for step in range(len(steps)):
        batches = [batch for loader in loaders for batch in loader[step * accumulation : (step + 1) * accumulation]]
        found = [session.rows[row] for batch in batches for row in _rows_in(batch, finder)]
        if step in chosen:
            writer.line(
                "batches", "variants", accumulation=accumulation, shards=shards, step=step, rows=sorted(r.row for r in found),
                tokens=sum(len(row.ids) for row in found), loss_tokens=sum(int(row.loss_mask.sum()) for row in found),
            )  # fmt: skip


def _rows_in(batch: dict, finder: RowFinder) -> list[int]:
    """Row numbers of a collated micro-batch but for the empty rows."""
    pairs = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    found = [finder.find(row[seen == 1].numpy().astype(np.int32)) for row, seen in pairs]
    return [row for row in found if row is not None]


def _record_padding(session: Session, writer: BundleWriter, precision: str) -> None:
    """One micro-batch's loss, padded to its longest row, and to the plan's width on either side."""
    trainer = session.trainer(session.warm.adapter, Run(precision))
    rows = [session.rows[row] for row in session.plan.warm_rows.micros[0][0]]
    targets = sum(int(row.loss_mask.sum()) for row in rows)
    for side, width in (("none", None), ("right", session.plan.width), ("left", session.plan.width)):
        batch = collate(rows, session.plan.pad_id, width=width, side="right" if side == "none" else side)
        taken = batch["input_ids"].shape[1]
        with torch.no_grad(), arithmetic(precision, trainer.args.device.type), trainer.accelerator.autocast():
            loss = trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch), num_items_in_batch=targets)
        writer.line("batches", "padding", precision=precision, side=side, width=taken, loss=float(loss))
