"""Writes a measurement bundle, cell by cell: each is written beside and renamed, and the manifest after it."""

import dataclasses
import os
import platform
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from conformance.bench.cells import Cell
from conformance.bench.files import write_run
from conformance.bench.load import Load, Measurement, Target
from conformance.bench.measurements import (
    CELL,
    CELLS,
    MANIFEST,
    RUN,
    VERSION,
    CellRecord,
    Manifest,
    Measurements,
    Subject,
    files_of,
    folder_name,
    read_manifest,
)
from conformance.contract.digest import canonical_json, sha256_file, sha256_tree
from conformance.contract.errors import ContractError


class SweepFolder(Measurements):
    """A bundle that grows by whole cells. What a stopped sweep left half done is removed when it is opened."""

    @classmethod
    def begin(cls, path: Path, cells: Path, subject: Subject, replicates: int, digests: dict[str, str]) -> "SweepFolder":
        """A new folder, or that of a sweep with the same cells, subject and code, to go on with."""
        path = Path(path)
        if not (path / MANIFEST).is_file():
            if path.exists() and any(path.iterdir()):
                raise ContractError(f"--out {path}: neither empty nor a sweep; choose a new folder")
            path.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cells, path / CELLS)
            started = datetime.now(UTC).isoformat(timespec="seconds")
            files = {CELLS: sha256_file(path / CELLS)}
            _write_json(path / MANIFEST, Manifest(VERSION, subject, replicates, code(), started, environment(), digests, files))
        known = read_manifest(path)
        wanted = {"subject": subject, "cells": digests, "code_sha256": code()}
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
        _write_text(folder / name, canonical_json(manifest))
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
        _write_json(partial / CELL, record)
        partial.rename(folder)
        self._add(*files_of(folder))

    def _add(self, *paths: Path) -> None:
        self._save(files=self.manifest.files | {str(path.relative_to(self.path)): sha256_file(path) for path in paths})

    def _save(self, **changes) -> None:
        self.manifest = dataclasses.replace(self.manifest, **changes)
        _write_json(self.path / MANIFEST, self.manifest)


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


def _write_json(path: Path, record) -> None:
    _write_text(path, canonical_json(_given(record)))


def _given(value):
    """Dataclasses as tables, without what has its default: JSON has no null here."""
    if dataclasses.is_dataclass(value):
        fields = [(one.name, getattr(value, one.name), one.default) for one in dataclasses.fields(value)]
        return {name: _given(here) for name, here, default in fields if here is not None and here != default}
    return [_given(one) for one in value] if isinstance(value, tuple) else value


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.rename(path)
