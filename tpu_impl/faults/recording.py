"""One process that plants fault after fault and records, under each, only what the catalogue says that it changes."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import jax

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.faults import MESHES, Fault, check_known, record_parts
from conformance.contract.progress import Progress, timed
from conformance.contract.recipe import Recipe
from conformance.contract.sharding import ONE
from tpu_impl import optimizer
from tpu_impl.environment import environment, prepare_process
from tpu_impl.faults.apart import KNOWN, ON_MESHES, check_peer, parts_of, record_mesh
from tpu_impl.faults.parts import TRAINING
from tpu_impl.faults.plants import PLANTS, planted
from tpu_impl.mesh_processes import DEVICES, with_devices
from tpu_impl.session import Session

PROGRAMS = "programs"
ALONE = f"{MESHES} {ONE.name}"  # what every mesh is compared with


def record_faults(recipe: Recipe, out: Path, faults: Iterable[Fault], progress: Progress, peer: Path | None = None) -> None:
    """Writes OUT/<id>/, a bundle of some parts, for every fault; and a line in OUT/refused.jsonl for what a stack refuses.

    `peer`: the other stack's clean bundle of the same recipe, for faults of reading its files.
    """
    faults = sorted(faults, key=lambda fault: fault.start == "own")  # first those that share the clean session's programs
    check_known(faults, KNOWN, PLANTS)
    for fault in faults:
        check_peer(fault, peer)
    if any(fault.on_meshes for fault in faults):
        os.environ.update(with_devices(DEVICES))  # no array is there yet, so that JAX still reads it
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(out / PROGRAMS))  # keyed by the program's text: no fault meets another's
    prepare_process()
    with Session(recipe, progress) as clean:
        if any(map(takes_clean_run, faults)):
            clean.main_run  # noqa: B018  (made before the first fault is planted)
        for fault in faults:
            with timed(progress, fault.id):
                _record(fault, clean, out, peer)


def record_clean(recipe: Recipe, out: Path, faults: Iterable[Fault], progress: Progress) -> None:
    """The bundle OUT without a fault, of the meshes that `faults` are recorded on: the rung sharding in part, in this process."""
    parts = [part for part in ON_MESHES if part == ALONE or any(part in fault.records for fault in faults)]
    os.environ.update(with_devices(DEVICES))
    prepare_process()
    with Session(recipe, progress) as session, BundleWriter(out, stack="port", recipe=recipe, plan=session.plan) as writer:
        writer.partial(MESHES, f"one process recorded {len(parts)} meshes of {len(ON_MESHES)}, to plant faults on them")
        for part in parts:
            with timed(progress, part):
                record_mesh(ON_MESHES[part], session, writer)
        writer.manifest(**environment())


def takes_clean_run(fault: Fault) -> bool:
    """Whether what is recorded may build on the training run, which the fault does not change."""
    return not set(fault.records) & set(TRAINING) and not fault.apart


def _record(fault: Fault, clean: Session, out: Path, peer: Path | None) -> None:
    with ExitStack() as stack:
        stack.enter_context(forgotten(fault))
        stack.enter_context(planted(fault))
        session = stack.enter_context(Session(clean.recipe, clean.progress))
        share(session, clean, fault)
        path = out / fault.id
        writer = stack.enter_context(BundleWriter(path, stack=fault.stack, recipe=clean.recipe, plan=clean.plan))
        record_parts(fault, parts_of(fault, peer), session, writer, out)
        writer.manifest(**environment())


def share(session: Session, clean: Session, fault: Fault) -> None:
    """What the fault can't change is the clean session's."""
    session.plan = clean.plan
    if fault.start == "shared":
        session._attached = clean._attached
    if takes_clean_run(fault):
        session.main_run = clean.main_run


def forgotten(fault: Fault) -> ExitStack:
    """Before and after the fault nothing is remembered that it could change: transformations, and programs if it starts anew."""
    stack = ExitStack()
    for forget in (optimizer._transformation.cache_clear, optimizer._accumulated.cache_clear):
        forget()
        stack.callback(forget)
    if fault.start == "own":
        jax.clear_caches()
        stack.callback(jax.clear_caches)
    return stack
