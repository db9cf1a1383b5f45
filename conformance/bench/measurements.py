"""The measurement bundle of a sweep: raw events of every cell and replicate, what the server said, and a manifest with all digests.

    DIR/manifest.json  cells.toml                   logs/: of servers that were started here, not part of the bundle
    DIR/replicate-1/server-1.json                   one a server start; a resumed replicate has several
    DIR/replicate-1/CELL/cell.json  run/run.json  run/requests.jsonl
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conformance.bench.cells import Cell, Plan, read_plan
from conformance.bench.compiling import Window
from conformance.bench.files import Facts, read_run
from conformance.bench.load import Measurement
from conformance.bench.metrics import Counters
from conformance.bench.speed_of_light import Model
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record

VERSION = 1
MANIFEST, CELLS, CELL, RUN, LOGS = "manifest.json", "cells.toml", "cell.json", "run", "logs"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured; a sweep is resumed with the same only. `machine`: a name in devices.toml, or empty."""

    platform: str
    model_name: str
    tokenizer_sha256: str
    machine: str = ""
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """`cells`: name -> digest; `files`: path -> sha256 of every file of the bundle but this one."""

    version: int
    subject: Subject
    replicates: int
    code_sha256: str
    started: str
    environment: dict
    cells: dict
    files: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What belongs to a cell besides its events. `left_out`: why it was not measured; the rest is then empty."""

    name: str
    digest: str
    server: str = ""  # file of the server's manifest, beside the cell
    warm_up_requests: int = 0
    before: Counters = field(default_factory=Counters)
    after: Counters = field(default_factory=Counters)
    window: Window = field(default_factory=Window)
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell of a replicate, read back."""

    cell: Cell
    record: CellRecord
    facts: Facts | None = None
    run: Measurement | None = None


class Measurements:
    """An open bundle: digests checked, cells read when asked for."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        self._check_files()
        self.plan: Plan = read_plan(self.path / CELLS)

    @property
    def replicates(self) -> range:
        return range(1, self.manifest.replicates + 1)

    def has(self, replicate: int, cell: Cell) -> bool:
        return f"{folder_name(replicate)}/{cell.name}/{CELL}" in self.manifest.files

    def left(self, replicate: int) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.plan.cells if not self.has(replicate, cell))

    def record(self, replicate: int, cell: Cell) -> CellRecord:
        """Without the events."""
        path = self._folder(replicate, cell) / CELL
        return read_record(CellRecord, json.loads(path.read_text()), where=str(path))

    def read(self, replicate: int, cell: Cell) -> Measured:
        record = self.record(replicate, cell)
        return Measured(cell, record) if record.left_out else Measured(cell, record, *read_run(self._folder(replicate, cell) / RUN))

    def server(self, replicate: int, name: str) -> dict:
        """A server's manifest by its file's name, empty for none."""
        return json.loads((self.path / folder_name(replicate) / name).read_text()) if name else {}

    def _folder(self, replicate: int, cell: Cell) -> Path:
        return self.path / folder_name(replicate) / cell.name

    def _check_files(self) -> None:
        found = {str(path.relative_to(self.path)): path for path in files_of(self.path)}
        for name, digest in self.manifest.files.items():
            if name not in found:
                raise ContractError(f"measurements {self.path}: {name} is missing")
            if sha256_file(found[name]) != digest:
                raise ContractError(f"measurements {self.path}: {name} is not the file that was recorded (sha256 differs)")
        extra = sorted(set(found) - set(self.manifest.files))
        if extra:
            raise ContractError(f"measurements {self.path}: {extra[0]} is not in {MANIFEST}")


def folder_name(replicate: int) -> str:
    return f"replicate-{replicate}"


def files_of(folder: Path) -> Iterator[Path]:
    """Of the bundle: not its manifest, logs, and what is hidden because it is half done."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts != (MANIFEST,) and parts[0] != LOGS and not any(part.startswith(".") for part in parts):
            yield path


def read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    if not file.is_file():
        raise ContractError(f"measurements {path}: no {MANIFEST} in it")
    try:
        values = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ContractError(f"{file}: not JSON: {error}") from error
    if values.get("version") != VERSION:
        raise ContractError(f"measurements {path}: version {values.get('version')!r}; this suite reads {VERSION}")
    return read_record(Manifest, values, where=str(file))
