"""The catalogue of planted faults: what a stack plants and records anew, and where the ladder must see it first."""

import json
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record

RECORDERS = ("port", "reference")  # stacks that record their faults in processes of their own
BENCH = "bench"  # the rung of what a client or a sweep does wrong: seen by checks of the run itself
CATALOGUE = Path(__file__).parents[1] / "faults" / "catalogue.toml"
REFUSED = "refused"  # instead of a check: the stack itself refuses to record the rung, and says why
REFUSALS = "refused.jsonl"  # in the recorder's folder: id, rung, error
MESHES = "sharding"  # the rung of faults that need several devices
APART = ("merge exchange", "generation exchange", "checkpoint kill")  # parts of the peer's files, and of killed savers

Part = Callable[..., None]  # (session, writer): records a part of a rung


@dataclass(frozen=True, slots=True)
class PlantedCause:
    """What went wrong, where to look, how to mend it: said so that a stranger with another port understands it."""

    id: str
    cause: str
    seam: str
    mend: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault. `records` names the parts that the stack records anew under it, in the ladder's order."""

    id: str
    source: str  # public report, "correction off: NAME", or an item of FACTS.md
    cause: str  # id of a PlantedCause
    plant: str  # the function that plants it, by its name in the stack's table of plants
    records: tuple[str, ...]
    rung: str
    check: str  # the first that must fail
    value: float | None = None  # size of a variant
    stack: Literal["port", "reference", "server", "client"] = "port"  # server: of the rung serving; client: measures servers
    start: Literal["shared", "own"] = "shared"  # "own": changes the model, what is compiled or served: needs a start of its own
    slow: bool = False  # takes longer than its like, or is planted on a mesh that few are: not one of the third in `tox -e test`
    smallest: bool = False  # the smallest size of its kind that is known to be caught: a line of the sensitivity table

    @property
    def side(self) -> str:
        """Of the pair, where its recordings belong."""
        return "port" if self.stack == "server" else self.stack

    @property
    def correction(self) -> str | None:
        """The correction that it switches off, if it does."""
        kind, _, name = self.source.partition("correction off: ")
        return name if not kind else None

    @property
    def on_meshes(self) -> bool:
        """Whether it is recorded on several devices, with the recipe that is small enough for that."""
        return rung_of(self.records[0]) == MESHES

    @property
    def apart(self) -> bool:
        """Whether it needs more than a stack's own process: devices, the peer's files, processes that are killed."""
        return self.on_meshes or bool(set(self.records) & set(APART))


def read_faults(path: Path = CATALOGUE) -> tuple[Fault, ...]:
    faults, causes = _read(path, Fault, "fault"), read_causes(path)
    for fault in faults:
        if fault.cause not in causes:
            raise ContractError(f"{path.name}: fault {fault.id!r}: cause = {fault.cause!r} is no [[cause]] of the file")
    return faults


def read_causes(path: Path = CATALOGUE) -> dict[str, PlantedCause]:
    """By id."""
    return {cause.id: cause for cause in _read(path, PlantedCause, "cause")}


def _read(path: Path, record: type, kind: str) -> tuple:
    entries = tomllib.loads(path.read_text())[kind]
    return tuple(read_record(record, entry, where=path.name, prefix=f"{kind} {entry.get('id')!r}: ") for entry in entries)


def chosen(faults: tuple[Fault, ...], ids: tuple[str, ...] | None) -> tuple[Fault, ...]:
    """Those named, in the catalogue's order; None: all."""
    unknown = sorted(set(ids or ()) - {fault.id for fault in faults})
    if unknown:
        raise ContractError(f"fault {unknown[0]!r} is not in the catalogue")
    return tuple(fault for fault in faults if ids is None or fault.id in ids)


def of_stack(faults: tuple[Fault, ...], *stacks: str) -> tuple[Fault, ...]:
    """Those that are planted into one of `stacks`."""
    return tuple(fault for fault in faults if fault.stack in stacks)


def check_known(faults: Iterable[Fault], parts: Collection[str], plants: Collection[str]) -> None:
    """Refuses a fault that a stack can't plant or record."""
    for fault in faults:
        unknown = [name for name in fault.records if name not in parts] + [name for name in (fault.plant,) if name not in plants]
        if unknown:
            raise ContractError(f"fault {fault.id}: {unknown[0]!r} is neither a part of a recording nor a plant")


def record_parts(fault: Fault, parts: dict[str, Part], session, writer: BundleWriter, out: Path) -> None:
    """Under a fault a part may end in any error: that too is how a stack shows it, and the last part that is recorded."""
    for part in fault.records:
        try:
            parts[part](session, writer)
        except Exception as error:
            line = {"id": fault.id, "rung": rung_of(part), "error": f"{type(error).__name__}: {error}".splitlines()[0]}
            with (out / REFUSALS).open("a") as file:
                file.write(json.dumps(line) + "\n")
            return


def rung_of(part: str) -> str:
    return part.split()[0]
