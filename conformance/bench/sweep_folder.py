"""Writes a measurement bundle, cell by cell: each is written beside and renamed, and the manifest after it."""

import dataclasses
import os
import platform
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from conformance.bench.bundle_files import MANIFEST, digests_below, files_of, write_json
from conformance.bench.cells import Cell
from conformance.bench.files import write_run
from conformance.bench.load import Load, Measurement, Target
from conformance.bench.measurements import (
    CELL,
    CELLS,
    RUN,
    VERSION,
    CellRecord,
    Manifest,
    Measurements,
    Subject,
    folder_name,
    read_manifest,
)
from conformance.contract.digest import canonical_json, sha256_tree
from conformance.contract.errors import ContractError
from conformance.contract.whole_text import write_text


class SweepFolder(Measurements):
    """A bundle that grows by whole cells. What a stopped sweep left half done is removed when it is opened."""

    @classmethod
    def begin(
        cls, path: Path, cells: Path, subject: Subject, replicates: int, digests: dict[str, str], lock_sha256: str = ""
    ) -> "SweepFolder":
        """A new folder, or that of a sweep with the same cells, subject, code and locked plan, to go on with."""
        path = Path(path)
        if not (path / MANIFEST).is_file():
            if path.exists() and any(path.iterdir()):
                raise ContractError(f"--out {path}: neither empty nor a sweep; choose a new folder")
            path.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cells, path / CELLS)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            files = digests_below(path, path / CELLS)
            facts = (VERSION, subject, replicates, code(), started, environment(), digests, files, lock_sha256)
            write_json(path / MANIFEST, Manifest(*facts))
        known = read_manifest(path)
        wanted = {"subject": subject, "cells": digests, "code_sha256": code(), "lock_sha256": lock_sha256}
        differing = [name for name, value in wanted.items() if getattr(known, name) != value]
        if differing:
            raise ContractError(f"--out {path}: a sweep with another {differing[0]}; choose a new folder")
        _remove_unlisted(path, known)
        folder = cls(path)
        if replicates > known.replicates:
            folder._save(replicates=replicates)
        return folder

    def add_server(self, replicate: int, manifest: dict) -> str:
        """File of its manifest; empty for none."""
        if not manifest:
            return ""
        folder = self.path / folder_name(replicate)
        folder.mkdir(exist_ok=True)
        name = f"server-{sum(1 for _ in folder.glob('server-*.json')) + 1}.json"
        write_text(folder / name, canonical_json(manifest))
        self._add(folder / name)
        return name

    def leave_out(self, replicate: int, cell: Cell, reason: str) -> None:
        self._write(replicate, CellRecord(cell.name, self.manifest.cells[cell.name], left_out=reason))

    def add(self, replicate: int, record: CellRecord, target: Target, load: Load, run: Measurement) -> None:
        self._write(replicate, record, lambda folder: write_run(folder / RUN, target, load, run))

    def _write(self, replicate: int, record: CellRecord, write: Callable[[Path], None] = lambda folder: None) -> None:
        folder = self.path / folder_name(replicate) / record.name
        partial = folder.with_name(f".{record.name}.partial")
        partial.mkdir(parents=True)
        write(partial)
        write_json(partial / CELL, record)
        partial.rename(folder)
        self._add(*files_of(folder))

    def _add(self, *paths: Path) -> None:
        self._save(files=self.manifest.files | digests_below(self.path, *paths))

    def _save(self, **changes) -> None:
        self.manifest = dataclasses.replace(self.manifest, **changes)
        write_json(self.path / MANIFEST, self.manifest)


def code() -> str:
    """Digest of the code that measures."""
    return sha256_tree(Path(__file__).parent)


def environment() -> dict[str, str]:
    packages = {name: version(name) for name in ("aiohttp", "numpy", "prometheus_client")}
    return {"python": platform.python_version(), "machine": platform.platform(), "cpus": str(os.cpu_count())} | packages


def _remove_unlisted(path: Path, manifest: Manifest) -> None:
    for folder in path.glob("replicate-*/*"):
        name = str(folder.relative_to(path))
        if folder.is_dir() and f"{name}/{CELL}" not in manifest.files:
            shutil.rmtree(folder)
        elif folder.is_file() and name not in manifest.files:
            folder.unlink()
