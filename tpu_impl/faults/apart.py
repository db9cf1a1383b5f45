"""Parts of a recording that need more than the recorder's own process on one device: meshes, the peer's files, killed savers."""

from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter, ExchangeWriter
from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, Part
from conformance.contract.sharding import MESHES, Mesh, sharding_recipe
from tpu_impl.faults.parts import PARTS
from tpu_impl.faults.saving import saver_with
from tpu_impl.mesh_run import run_mesh
from tpu_impl.record_after import record_forced, record_kills, record_read_files
from tpu_impl.record_sharding import write_mesh
from tpu_impl.session import Session

EXCHANGES = {"merge exchange": record_read_files, "generation exchange": record_forced}
KILLS = "checkpoint kill"
ON_MESHES = {f"sharding {mesh.name}": mesh for mesh in MESHES}
KNOWN = {*PARTS, *EXCHANGES, KILLS, *ON_MESHES}


def parts_of(fault: Fault, peer: Path | None) -> dict[str, Part]:
    """Every part, as `fault` is recorded with it. `peer`: the other stack's clean bundle."""
    kills = partial(record_kills, around=partial(saver_with, fault.plant, fault.value))
    meshes = {part: partial(record_mesh, mesh) for part, mesh in ON_MESHES.items()}
    return PARTS | {KILLS: kills} | meshes | {part: partial(_record_exchange, part, peer) for part in EXCHANGES}


def check_peer(fault: Fault, peer: Path | None) -> None:
    if set(fault.records) & set(EXCHANGES) and peer is None:
        raise ContractError(f"fault {fault.id} is one of reading the peer's files: --peer names the other stack's clean bundle")


def record_mesh(mesh: Mesh, session: Session, writer: BundleWriter) -> None:
    """Here, without a process of its own: a program that is compiled anew forgets the others, and imports take longer than a run."""
    folder = Path(mkdtemp(dir=session.scratch))
    with Session(sharding_recipe(session.recipe), session.progress) as other:
        other.rows = session.rows
        run_mesh(other, mesh, folder)
    write_mesh(writer, mesh.name, folder)


def _record_exchange(part: str, peer: Path, session: Session, writer: BundleWriter) -> None:
    bundle = Bundle(peer)
    with ExchangeWriter(writer, bundle, session.plan) as exchange:
        EXCHANGES[part](session, bundle, exchange)
