"""Reading bundles: a folder of safetensors, JSON Lines and one manifest (docs/bundle.md)."""

import dataclasses
import json
from functools import cached_property
from pathlib import Path

import numpy as np

from conformance.contract.checkpoint_files import read_file
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError, NotRecorded
from conformance.contract.recipe import Recipe
from conformance.contract.schema import RUNGS, VERSION
from conformance.contract.toml_records import read_record
from conformance.contract.validate import check_array, parse_line

MANIFEST = "manifest.json"
EXCHANGE = "exchange"
# What every bundle's manifest says; device, versions, code_sha256 and seeds are shown where they are there.
NEEDED = ("version", "stack", "recipe_sha256", "recipe_root", "plan_sha256", "rows_sha256", "checkpoint_sha256", "large", "files")


class Bundle:
    """A whole bundle on disk. Opening it checks version, files and their digests; arrays are checked when they are read."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)
        absent = [key for key in NEEDED if key not in self.manifest]
        if absent:
            raise ContractError(f"bundle {self.path}: {MANIFEST} has no {absent[0]!r}; needed: {', '.join(NEEDED)}")
        self._files: dict[str, dict[str, np.ndarray]] = {}
        self._lines: dict[str, list[dict]] = {}

    @property
    def stack(self) -> str:
        return self.manifest["stack"]

    @property
    def not_recorded(self) -> dict[str, str]:
        """Rung, or part of one -> the error with which the stack could not do it. A recorder that has such parts says so."""
        return self.manifest.get("not_recorded", {}) | self._said_later("not_recorded")

    @property
    def recipe(self) -> Recipe:
        """The recipe as recorded; its paths start from where they did on the recording machine."""
        values = json.loads((self.path / "recipe.json").read_text())
        recipe = read_record(Recipe, values, where=f"{self.path}/recipe.json", skip=("root",))
        return dataclasses.replace(recipe, root=Path(self.manifest["recipe_root"]))

    @property
    def large(self) -> bool:
        """Whether arrays are in their reduced form."""
        return self.manifest["large"]

    @property
    def rungs(self) -> tuple[str, ...]:
        return tuple(rung for rung in RUNGS if self.has(rung))

    @cached_property
    def plan(self) -> dict:
        return json.loads((self.path / "plan.json").read_text())

    def has(self, rung: str) -> bool:
        return any(self.file(rung, ending).is_file() for ending in (".safetensors", ".jsonl"))

    def file(self, rung: str, ending: str) -> Path:
        """Where the arrays (".safetensors") or lines (".jsonl") of a rung are: a rung that was recorded later has a folder."""
        folder = self.path / rung if rung in self._later else self.path
        return folder / f"{rung}{ending}"

    @cached_property
    def _later(self) -> dict[str, dict]:
        """Rung -> manifest of those that were added after the bundle was whole."""
        return {rung: self._later_manifest(rung) for rung in RUNGS if (self.path / rung / MANIFEST).is_file()}

    def _later_manifest(self, rung: str) -> dict:
        manifest = _read_manifest(self.path / rung)
        if manifest.get("bundle_manifest_sha256") != sha256_file(self.path / MANIFEST):
            raise ContractError(f"bundle {self.path}: {rung}/ was recorded for another bundle: remove it, and record it again")
        return manifest

    def _said_later(self, key: str) -> dict[str, str]:
        return {rung: manifest[key] for rung, manifest in self._later.items() if key in manifest}

    @property
    def exchange_folder(self) -> Path:
        return self.path / EXCHANGE

    @property
    def exchanged(self) -> bool:
        return (self.exchange_folder / MANIFEST).is_file()

    @cached_property
    def exchange(self) -> dict[str, np.ndarray]:
        """Arrays of the second phase by key."""
        _read_manifest(self.exchange_folder)
        arrays = read_file(self.exchange_folder / f"{EXCHANGE}.safetensors")
        for key, value in arrays.items():
            check_array(EXCHANGE, key, value, large=self.large)
        return arrays

    @property
    def exchange_peer(self) -> str:
        """sha256 of the manifest of the bundle that the second phase loaded."""
        return _read_manifest(self.exchange_folder)["peer_manifest_sha256"]

    def array(self, rung: str, key: str) -> np.ndarray:
        arrays = self.arrays(rung)
        if key not in arrays:
            self.expect_whole(rung, f"array {key!r}")
            raise ContractError(f"bundle {self.path}: {rung} has no array {key!r}")
        return arrays[key]

    def arrays(self, rung: str, prefix: str = "") -> dict[str, np.ndarray]:
        """Arrays of a rung whose key starts with `prefix`, by the rest of the key."""
        if rung not in self._files:
            path = self.file(rung, ".safetensors")
            self._files[rung] = read_file(path) if path.is_file() else {}
            for key, value in self._files[rung].items():
                check_array(rung, key, value, large=self.large)
        found = {key[len(prefix) :]: value for key, value in self._files[rung].items() if key.startswith(prefix)}
        if prefix and not found:
            self.expect_whole(rung, f"arrays {prefix}...")
        return found

    def lines(self, rung: str, series: str) -> list[dict]:
        found = [line for line in self._all_lines(rung) if line["series"] == series]
        if not found and series:
            self.expect_whole(rung, f"line {series!r}")
        return found

    @property
    def partial(self) -> dict[str, str]:
        """Rung -> why it is recorded in part only."""
        return self.manifest.get("partial", {}) | self._said_later("partial")

    def expect_whole(self, rung: str, what: str) -> None:
        """`what` is absent: in a partial rung that is not proven; in a whole one it is for the check to judge."""
        if rung in self.partial:
            raise NotRecorded(f"{self.stack} recorded {rung} in part, without {what}: {self.partial[rung]}")

    def folder(self, name: str) -> Path:
        if not (self.path / name).is_dir():
            raise ContractError(f"bundle {self.path}: no folder {name!r} in it")
        return self.path / name

    def _all_lines(self, rung: str) -> list[dict]:
        if rung not in self._lines:
            path = self.file(rung, ".jsonl")
            texts = path.read_text().splitlines() if path.is_file() else []
            self._lines[rung] = [self._line(rung, text, f"{path}:{number}") for number, text in enumerate(texts, 1)]
        return self._lines[rung]

    def _line(self, rung: str, text: str, where: str) -> dict:
        line = parse_line(rung, text, where, partial=rung in self.partial)
        return PartialLine(line, self, rung) if rung in self.partial else line


class PartialLine(dict):
    """A line of a partial rung: asking for a field that it does not have is `NotRecorded`, never a default."""

    def __init__(self, line: dict, bundle: Bundle, rung: str):
        super().__init__(line)
        self._bundle, self._rung = bundle, rung

    def __missing__(self, name: str):
        self._bundle.expect_whole(self._rung, f"{self['series']}.{name}")

    def get(self, name: str, default=None):
        return self[name]


def _read_manifest(folder: Path) -> dict:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError as error:
        raise ContractError(f"bundle {folder}: no {MANIFEST}: not a bundle, or its recorder was stopped") from error
    except json.JSONDecodeError as error:
        raise ContractError(f"bundle {folder}: {MANIFEST} is not JSON: {error}") from error
    if manifest.get("version") != VERSION:
        raise ContractError(f"bundle {folder}: version {manifest.get('version')!r}; this suite reads {VERSION}")
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file():
            raise ContractError(f"bundle {folder}: {name} is missing")
        if sha256_file(folder / name) != digest:
            raise ContractError(f"bundle {folder}: {name} is not the file that was recorded (sha256 differs)")
    return manifest
