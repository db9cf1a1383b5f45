"""The measurement bundle of a sweep: raw events of every cell and replicate, what the server said, and a manifest with all digests.

    DIR/manifest.json  cells.toml                   logs/: of servers that were started here, not part of the bundle
    DIR/replicate-1/server-1.json                   one a server start; a resumed replicate has several
    DIR/replicate-1/CELL/cell.json  run/run.json  run/requests.jsonl
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from conformance.bench import bundle_files
from conformance.bench.bundle_files import check_files
from conformance.bench.cells import Cell, Plan, read_plan
from conformance.bench.compiling import Window
from conformance.bench.files import Facts, read_run
from conformance.bench.load import Measurement
from conformance.bench.metrics import Counters
from conformance.bench.speed_of_light import Model
from conformance.contract.toml_records import read_record

VERSION = 1
CELLS, CELL, RUN = "cells.toml", "cell.json", "run"


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
    """`cells`: name -> digest; `files`: path -> sha256 of every file of the bundle but this one.

    `lock_sha256`: digest of the locked plan (gate/lock.py) that it was made for, empty for none.
    """

    version: int
    subject: Subject
    replicates: int
    code_sha256: str
    started: str
    environment: dict
    cells: dict
    files: dict = field(default_factory=dict)
    lock_sha256: str = ""


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
        check_files(self.path, self.manifest.files)
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


def folder_name(replicate: int) -> str:
    return f"replicate-{replicate}"


def read_manifest(path: Path) -> Manifest:
    return bundle_files.read_manifest(path, Manifest, VERSION)
