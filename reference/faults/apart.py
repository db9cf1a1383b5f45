"""Parts of a recording that need more than the recorder's own process: several ranks, the peer's files, killed savers."""

from functools import partial
from pathlib import Path

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter, ExchangeWriter
from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, Part
from conformance.contract.sharding import sharding_recipe
from reference.faults.parts import PARTS
from reference.faults.saving import saver_with
from reference.record_after import record_forced, record_kills, record_read_files
from reference.record_sharding import RANKS, write_mesh
from reference.session import Session
from reference.sharding import Job, observe_processes

EXCHANGES = {"merge exchange": record_read_files, "generation exchange": record_forced}
KILLS, TOGETHER = "checkpoint kill", f"sharding ranks={RANKS}"
KNOWN = {*PARTS, *EXCHANGES, KILLS, TOGETHER}


def parts_of(fault: Fault, peer: Path | None) -> dict[str, Part]:
    """Every part, as `fault` is recorded with it. `peer`: the other stack's clean bundle."""
    kills = partial(record_kills, around=partial(saver_with, fault.plant, fault.value))
    exchanges = {part: partial(_record_exchange, part, peer) for part in EXCHANGES}
    return PARTS | {KILLS: kills, TOGETHER: partial(_record_ranks, fault)} | exchanges


def check_peer(fault: Fault, peer: Path | None) -> None:
    if set(fault.records) & set(EXCHANGES) and peer is None:
        raise ContractError(f"fault {fault.id} is one of reading the peer's files: --peer names the other stack's clean bundle")


def _record_ranks(fault: Fault, session: Session, writer: BundleWriter) -> None:
    job = Job(sharding_recipe(session.recipe), session.rows, session.scratch)
    write_mesh(writer, RANKS, observe_processes(RANKS, job, session.progress, "reference.faults.rank", (fault.id,)))


def _record_exchange(part: str, peer: Path, session: Session, writer: BundleWriter) -> None:
    bundle = Bundle(peer)
    with ExchangeWriter(writer, bundle, session.plan) as exchange:
        EXCHANGES[part](session, bundle, exchange)
