"""Records the rungs *checkpoint*, *merge* and *generation*, and the exchange with the peer's files."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter, ExchangeWriter
from conformance.contract.choices import FOLDERS, write_choices, write_forced, write_merged_tensors, write_own_forced
from conformance.contract.draws import loud_adapter
from conformance.contract.run_record import DEFAULT_DROPOUT
from tpu_impl.adapter import load_adapter
from tpu_impl.checkpoint import kills, resumes
from tpu_impl.generate import forced, generate, generate_uncached
from tpu_impl.merge import merge, write_adapter, wrong_merges
from tpu_impl.model import load_checkpoint
from tpu_impl.probe import plain_logits
from tpu_impl.saver import call
from tpu_impl.session import Session


def record_checkpoint(session: Session, writer: BundleWriter) -> None:
    record_resume(session, writer, 0.0)
    record_resume(session, writer, session.recipe.adapter.dropout or DEFAULT_DROPOUT)
    if jax.process_index() == 0:  # savers are processes of their own, which no other process of a run takes part in
        record_kills(session, writer)


def record_resume(session: Session, writer: BundleWriter, dropout: float) -> None:
    for resume in resumes(session, dropout):
        writer.line("checkpoint", "resume", **asdict(resume))


def record_kills(session: Session, writer: BundleWriter, around: Callable = call) -> None:
    for kill in kills(session, around):
        writer.line("checkpoint", "kill", **asdict(kill))


def record_merge(session: Session, writer: BundleWriter) -> None:
    for kind in FOLDERS:
        record_merged(session, writer, kind)
        record_merged_logits(session, writer, kind)
    loud, weights = loud_adapter(session.recipe, session.weights), tuple(weight.name for weight in session.weights)
    for control, merged in wrong_merges(session.recipe, loud, weights).items():
        for name, value in merged.items():
            writer.array("merge", f"control.{control}/{name}", value)


def record_merged(session: Session, writer: BundleWriter, kind: str) -> None:
    """Adapter folder and merged folder of the trained or the loud adapter, and what is in them."""
    adapter = session.main_run.final if kind == "trained" else loud_adapter(session.recipe, session.weights)
    adapter_folder, merged_folder = (writer.folder(name) for name in FOLDERS[kind])
    write_adapter(session.adapted(adapter), session.recipe, adapter, adapter_folder)
    tensors = merge(session.recipe, adapter, merged_folder)
    for weight in session.weights:
        writer.array("merge", f"{kind}/{weight.name}", tensors[f"{weight.name}.weight"])
    write_merged_tensors(writer, kind, merged_folder, session.recipe.checkpoint_dir)


def record_merged_logits(session: Session, writer: BundleWriter, kind: str) -> None:
    """What the two folders give when they are loaded."""
    adapter_folder, merged_folder = (writer.folder(name) for name in FOLDERS[kind])
    writer.array("merge", f"{kind}/merged/logits", plain_logits(session.with_base(merged_folder), session.plan))
    writer.array("merge", f"{kind}/unmerged/logits", plain_logits(_reloaded(session, adapter_folder), session.plan))


def _reloaded(session: Session, folder: Path):
    """The base with the adapter of a PEFT folder."""
    model = session.adapted(session.no_adapter)
    load_adapter(model, session.recipe, folder)
    return model


def record_generation(session: Session, writer: BundleWriter) -> None:
    for precision in ("f32", "bf16"):
        record_choices(session, writer, precision)


def record_choices(session: Session, writer: BundleWriter, precision: str) -> None:
    """What the merged trained model writes after each prompt."""
    model = load_checkpoint(session.merged, precision)
    choices = generate(model, session.plan)
    write_choices(writer, session.plan, precision, choices)
    write_own_forced(writer, precision, *forced(model, session.plan, choices.ids_GK))
    if precision == "f32":
        writer.array("generation", "f32/top2_gap", choices.gaps_GK)
        writer.array("generation", "f32.nocache/ids", generate_uncached(model, session.plan, choices.ids_GK))


def record_exchange(session: Session, bundle: Bundle, peer: Bundle) -> None:
    with ExchangeWriter(bundle, peer, session.plan) as writer:
        record_read_files(session, peer, writer)
        record_forced(session, peer, writer)


def record_read_files(session: Session, peer: Bundle, writer: ExchangeWriter) -> None:
    """The peer's adapters and merged checkpoints, loaded by this stack."""
    for adapter_folder, merged_folder in FOLDERS.values():
        adapted = _reloaded(session, peer.folder(adapter_folder))
        writer.array(f"{adapter_folder}/logits", plain_logits(adapted, session.plan))
        merged = session.with_base(peer.folder(merged_folder))
        writer.array(f"{merged_folder}/logits", plain_logits(merged, session.plan))


def record_forced(session: Session, peer: Bundle, writer: ExchangeWriter) -> None:
    """The peer's ids, forced on its own merged model."""
    ids_GK = np.asarray(peer.array("generation", "f32/ids"))
    for precision in ("f32", "bf16"):
        model = load_checkpoint(peer.folder(FOLDERS["trained"][1]), precision)
        argmax, choices = forced(model, session.plan, ids_GK)
        write_forced(writer, precision, argmax, choices)
