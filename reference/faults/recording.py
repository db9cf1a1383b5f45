"""One process that plants fault after fault and records, under each, only what the catalogue says that it changes."""

from collections.abc import Iterable
from pathlib import Path

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.faults import Fault, check_known, record_parts
from conformance.contract.progress import Progress, timed
from conformance.contract.recipe import Recipe
from reference.environment import environment, prepare_process
from reference.faults.apart import KNOWN, check_peer, parts_of
from reference.faults.parts import TRAINING
from reference.faults.plants import EDITS, planted
from reference.session import Session


def record_faults(recipe: Recipe, out: Path, faults: Iterable[Fault], progress: Progress, peer: Path | None = None) -> None:
    """Writes OUT/<id>/, a bundle of some parts, for every fault; and a line in OUT/refused.jsonl for what the stack refuses.

    `peer`: the other stack's clean bundle of the same recipe, for faults of reading its files.
    """
    faults = tuple(faults)
    check_known(faults, KNOWN, EDITS)
    for fault in faults:
        check_peer(fault, peer)
    out.mkdir(parents=True, exist_ok=True)
    prepare_process()
    with Session(recipe, progress) as clean:
        if any("merge" in fault.records for fault in faults):
            clean.main_run  # noqa: B018  (made before the first fault is planted)
        for fault in faults:
            with timed(progress, fault.id):
                _record(fault, clean, out, peer)


def _record(fault: Fault, clean: Session, out: Path, peer: Path | None) -> None:
    with (
        planted(fault),
        Session(clean.recipe, clean.progress) as session,
        BundleWriter(out / fault.id, stack=fault.stack, recipe=clean.recipe, plan=clean.plan) as writer,
    ):
        session.plan = clean.plan
        if not set(fault.records) & set(TRAINING) and "main_run" in vars(clean):
            session.main_run = clean.main_run
        record_parts(fault, parts_of(fault, peer), session, writer, out)
        writer.manifest(**environment())
