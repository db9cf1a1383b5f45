"""Records the rungs *tokens* and *batches*."""

import json

import numpy as np
from flax import nnx

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_bytes
from conformance.contract.kit import write_token_rows
from tpu_impl.data import TokenisedRow, arrange, collate, tokenise
from tpu_impl.session import Session
from tpu_impl.sharding import off_mesh
from tpu_impl.step import batch_loss

SPLITS = (1, 2, 4)
FIRST_STEPS = 3


def record_tokens(session: Session, writer: BundleWriter) -> None:
    unmasked = tokenise(session.plan, session.tokenizer, loss_scope="all")
    write_token_rows(writer, session.rows, unmasked)
    tokenizer = session.tokenizer
    writer.line(
        "tokens", "facts", template_sha256=sha256_bytes(tokenizer.chat_template.encode()), bos_id=tokenizer.bos_token_id,
        eos_ids=_eos_ids(session), pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def _eos_ids(session: Session) -> list[int]:
    """`eos_ids` end a generation; the tokenizer's own eos_token is only the first of them."""
    path = session.recipe.checkpoint_dir / "generation_config.json"
    ids = json.loads(path.read_text())["eos_token_id"] if path.exists() else session.tokenizer.eos_token_id
    return ids if isinstance(ids, list) else [ids]


def record_batches(session: Session, writer: BundleWriter) -> None:
    record_consumed(session, writer)
    record_variants(session, writer)
    record_padding(session, writer)


def record_consumed(session: Session, writer: BundleWriter) -> None:
    session.main_run.write_batches(writer)


def record_variants(session: Session, writer: BundleWriter) -> None:
    for accumulation in SPLITS:
        for shards in SPLITS:
            if session.recipe.batch.effective % (accumulation * shards) == 0:
                _record_variant(session, writer, accumulation, shards)


def _record_variant(session: Session, writer: BundleWriter, accumulation: int, shards: int) -> None:
    """The rows that the loader puts into the first steps and the last, under another split of the batch."""
    steps = session.plan.with_batch(accumulation, shards)
    with off_mesh():
        batches = arrange(session.rows, steps, session.plan)
    row_of = {row.ids.tobytes(): row for row in session.rows.values()}
    for step in (*range(min(FIRST_STEPS, len(steps) - 1)), len(steps) - 1):
        micros = [batches[step * accumulation + micro] for micro in range(accumulation)]
        found = [row for batch in micros for row in _rows_in(batch, row_of)]
        writer.line(
            "batches", "variants", accumulation=accumulation, shards=shards, step=step, rows=sorted(r.row for r in found),
            tokens=sum(len(row.ids) for row in found), loss_tokens=sum(int(row.loss_mask.sum()) for row in found),
        )  # fmt: skip


def _rows_in(batch: dict, row_of: dict[bytes, TokenisedRow]) -> list[TokenisedRow]:
    """A micro-batch's rows but the empty ones."""
    ids = [row[seen] for row, seen in zip(batch["input_tokens"], batch["attended"], strict=True)]
    return [row_of[row.tobytes()] for row in ids if row.tobytes() in row_of]


def record_padding(session: Session, writer: BundleWriter, precision: str = "f32") -> None:
    """One micro-batch's loss, padded to its longest row, and to the plan's width on either side."""
    graphdef, state = nnx.split(session.adapted(session.warm.adapter, precision))
    rows = [session.rows[row] for row in session.plan.warm_rows.micros[0][0]]
    targets = np.float32(sum(int(row.loss_mask.sum()) for row in rows))
    for side, width in (("none", None), ("right", session.plan.width), ("left", session.plan.width)):
        batch = collate(rows, session.plan.pad_id, width=width, side="right" if side == "none" else side)
        loss = batch_loss(graphdef, state, batch | {"loss_weight": batch["loss_weight"] / targets})
        taken = batch["input_tokens"].shape[1]
        writer.line("batches", "padding", precision=precision, side=side, width=taken, loss=float(loss))
