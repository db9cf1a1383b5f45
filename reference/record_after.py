"""Records the rungs *checkpoint*, *merge* and *generation*, and the exchange with the peer's files."""

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter, ExchangeWriter
from conformance.contract.choices import FOLDERS, write_choices, write_forced, write_merged_tensors, write_own_forced
from conformance.contract.draws import loud_adapter
from conformance.contract.run_record import DEFAULT_DROPOUT
from reference.adapter import load_adapter
from reference.checkpoint import kills, resumes
from reference.generate import forced, generate, generate_uncached
from reference.merge import merge, write_adapter, wrong_merges
from reference.model import load_checkpoint
from reference.probe import plain_logits
from reference.saver import call
from reference.session import Session


def record_checkpoint(session: Session, writer: BundleWriter) -> None:
    for dropout in (0.0, session.recipe.adapter.dropout or DEFAULT_DROPOUT):
        record_resume(session, writer, dropout)
    record_kills(session, writer)


def record_resume(session: Session, writer: BundleWriter, dropout: float) -> None:
    for resume in resumes(session, dropout):
        writer.line("checkpoint", "resume", **asdict(resume))


def record_kills(session: Session, writer: BundleWriter, around: Callable = call) -> None:
    for kill in kills(session, around):
        writer.line("checkpoint", "kill", **asdict(kill))


def record_merge(session: Session, writer: BundleWriter) -> None:
    loud = loud_adapter(session.recipe, session.weights)
    for kind, adapter in (("trained", session.main_run.final), ("loud", loud)):
        adapter_folder, merged_folder = (writer.folder(name) for name in FOLDERS[kind])
        write_adapter(session.recipe, adapter, adapter_folder)
        tensors = merge(session.recipe, adapter, merged_folder)
        for weight in session.weights:
            writer.array("merge", f"{kind}/{weight.name}", tensors[f"{weight.name}.weight"])
        write_merged_tensors(writer, kind, merged_folder, session.recipe.checkpoint_dir)
        merged = plain_logits(load_checkpoint(merged_folder), session.plan)
        writer.array("merge", f"{kind}/merged/logits", merged)
        writer.array("merge", f"{kind}/unmerged/logits", plain_logits(load_adapter(session.base(), adapter_folder), session.plan))
    for control, weights in wrong_merges(session.recipe, loud, tuple(weight.name for weight in session.weights)).items():
        for name, value in weights.items():
            writer.array("merge", f"control.{control}/{name}", value)


def record_generation(session: Session, writer: BundleWriter) -> None:
    folder = session.scratch / "generating"
    merge(session.recipe, session.main_run.final, folder)
    for precision in ("f32", "bf16"):
        model = load_checkpoint(folder, precision, session.recipe.model.attention)
        choices = generate(model, session.plan, precision)
        write_choices(writer, session.plan, precision, choices)
        write_own_forced(writer, precision, *forced(model, session.plan, choices.ids_GK, precision))
        if precision == "f32":
            writer.array("generation", "f32/top2_gap", choices.gaps_GK)
            writer.array("generation", "f32.nocache/ids", generate_uncached(model, session.plan, choices.ids_GK, precision))


def record_exchange(session: Session, bundle: Bundle, peer: Bundle) -> None:
    with ExchangeWriter(bundle, peer, session.plan) as writer:
        record_read_files(session, peer, writer)
        record_forced(session, peer, writer)


def record_read_files(session: Session, peer: Bundle, writer: ExchangeWriter) -> None:
    """The peer's adapters and merged checkpoints, loaded by this stack."""
    for adapter_folder, merged_folder in FOLDERS.values():
        adapted = load_adapter(session.base(), peer.folder(adapter_folder))
        writer.array(f"{adapter_folder}/logits", plain_logits(adapted, session.plan))
        merged = load_checkpoint(peer.folder(merged_folder))
        writer.array(f"{merged_folder}/logits", plain_logits(merged, session.plan))


def record_forced(session: Session, peer: Bundle, writer: ExchangeWriter) -> None:
    """The peer's ids, forced on its own merged model."""
    ids_GK = np.asarray(peer.array("generation", "f32/ids"))
    for precision in ("f32", "bf16"):
        model = load_checkpoint(peer.folder(FOLDERS["trained"][1]), precision, session.recipe.model.attention)
        argmax, choices = forced(model, session.plan, ids_GK, precision)
        write_forced(writer, precision, argmax, choices)
