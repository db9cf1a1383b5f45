"""Writing and reading bundles: a folder of safetensors, JSON Lines and one manifest, whole or absent."""

import dataclasses
import json
import os
import shutil
import sys
from collections import defaultdict
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from conformance.contract.checkpoint_files import read_file, write_file
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError, NotRecorded
from conformance.contract.kinds import reduce
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.schema import RUNGS, VERSION, array_spec
from conformance.contract.sizes import is_large
from conformance.contract.toml_records import read_record
from conformance.contract.validate import check_array, check_line, parse_line

MANIFEST = "manifest.json"
EXCHANGE = "exchange"
# What every bundle's manifest says; device, versions, code_sha256 and seeds are shown where they are there.
NEEDED = ("version", "stack", "recipe_sha256", "recipe_root", "plan_sha256", "rows_sha256", "checkpoint_sha256", "large", "files")


class BundleWriter:
    """Collects what a stack records; on a clean exit the folder appears under its name, on an error nothing does.

    Arrays of a rung are kept in memory until the end; everything is checked against the schema when it comes in.
    """

    def __init__(self, path: Path | str, *, stack: str, recipe: Recipe, plan: Plan):
        self.path = Path(path)
        if self.path.exists():
            raise ContractError(f"bundle {self.path}: already there; choose a new folder or remove it")
        self._partial = self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")
        self._arrays: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        self._lines: dict[str, list[dict]] = defaultdict(list)
        self._facts = {
            "version": VERSION,
            "stack": stack,
            "recipe_sha256": recipe.digest,
            "recipe_root": str(recipe.root),
            "plan_sha256": plan.digest,
            "rows_sha256": plan.row_digest,
            "checkpoint_sha256": {p.name: sha256_file(p) for p in sorted(recipe.checkpoint_dir.glob("*.safetensors"))},
            "seeds": recipe.to_dict()["seeds"],
            "python": sys.version.split()[0],
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._recipe, self._plan = recipe, plan
        self.large = self._facts["large"] = is_large(plan.topology)  # arrays are kept in their reduced form
        self._partial_rungs: dict[str, str] = {}

    def __enter__(self) -> "BundleWriter":
        self._partial.mkdir(parents=True)
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def array(self, rung: str, key: str, value: np.ndarray) -> None:
        """`value` in full; a large model's is reduced here to the kind that the schema names."""
        value = np.asarray(value)
        check_array(rung, key, value)
        if key in self._arrays[rung]:
            raise ContractError(f"{rung}: array {key!r} is recorded twice")
        kind = array_spec(rung, key).large if self.large else "full"
        self._arrays[rung] |= reduce(kind, key, value, self._plan.probes)

    def line(self, rung: str, series: str, **fields) -> None:
        line = {"series": series, **fields}
        check_line(rung, line, partial=rung in self._partial_rungs)
        self._lines[rung].append(line)

    def partial(self, rung: str, reason: str) -> None:
        """Says that `rung` is recorded in part, and why: what is absent is then not proven instead of failed.

        Series, arrays and fields of a line may be absent; say so before such a line comes.
        """
        if rung not in RUNGS:
            raise ContractError(f"rung {rung!r} is not one of {', '.join(RUNGS)}")
        before = self._partial_rungs.get(rung)
        self._partial_rungs[rung] = f"{before}; {reason}" if before else reason

    def folder(self, name: str) -> Path:
        """Where files of the bundle go while it is written, such as `adapter/`; not created here."""
        return self._partial / name

    @property
    def exchange_folder(self) -> Path:
        return self.folder(EXCHANGE)

    def manifest(self, **facts) -> None:
        """Adds versions, device, precision read back and the like."""
        self._facts |= facts

    def _finish(self) -> None:
        (self._partial / "recipe.json").write_text(canonical_json(self._recipe.to_dict()))
        (self._partial / "plan.json").write_text(canonical_json(self._plan.to_json()))
        _write_rungs(self._partial, self._arrays, self._lines)
        self._facts |= {"partial": self._partial_rungs} if self._partial_rungs else {}
        self._facts["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        _write_manifest(self._partial, self._facts)
        self._partial.rename(self.path)


class PhaseWriter:
    """Adds a folder to a bundle, with a manifest of its own; written beside and renamed."""

    def __init__(self, bundle: "Bundle | BundleWriter", target: Path, plan: Plan, **facts):
        self._large, self._probes, self._name = bundle.large, plan.probes, target.name
        self.target = target
        self._partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
        self._facts = {"version": VERSION, **facts}
        self._arrays: dict[str, np.ndarray] = {}
        self._lines: list[dict] = []

    def __enter__(self) -> "PhaseWriter":
        self._partial.mkdir()
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                _write_rungs(self._partial, *({self._name: found} if found else {} for found in (self._arrays, self._lines)))
                _write_manifest(self._partial, self._facts)
                shutil.rmtree(self.target, ignore_errors=True)
                self._partial.rename(self.target)
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def array(self, key: str, value: np.ndarray) -> None:
        value = np.asarray(value)
        check_array(self._name, key, value)
        kind = array_spec(self._name, key).large if self._large else "full"
        self._arrays |= reduce(kind, key, value, self._probes)


class ExchangeWriter(PhaseWriter):
    """The second phase: adds `exchange/`, what this stack makes of the peer's files, to a bundle, whole or still being written."""

    def __init__(self, bundle: "Bundle | BundleWriter", peer: "Bundle", plan: Plan):
        super().__init__(bundle, bundle.exchange_folder, plan, peer_manifest_sha256=sha256_file(peer.path / MANIFEST))


class RungWriter(PhaseWriter):
    """A rung that is recorded after the bundle, on another machine maybe: adds `RUNG/`, which holds its files."""

    def __init__(self, bundle: "Bundle", rung: str, plan: Plan):
        super().__init__(bundle, bundle.path / rung, plan, bundle_manifest_sha256=sha256_file(bundle.path / MANIFEST))

    def line(self, series: str, **fields) -> None:
        line = {"series": series, **fields}
        check_line(self._name, line, partial="partial" in self._facts)
        self._lines.append(line)

    def partial(self, reason: str) -> None:
        """As `BundleWriter.partial`, of this rung."""
        self._facts["partial"] = reason

    def not_recorded(self, reason: str) -> None:
        """Why the rung has nothing."""
        self._facts["not_recorded"] = reason


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


def _write_rungs(folder: Path, arrays: dict, lines: dict) -> None:
    for rung, values in arrays.items():
        write_file(folder / f"{rung}.safetensors", values)
    for rung, values in lines.items():
        (folder / f"{rung}.jsonl").write_text("".join(canonical_json(line) + "\n" for line in values))


def _write_manifest(folder: Path, facts: dict) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = facts | {"files": {str(path.relative_to(folder)): sha256_file(path) for path in files}}
    (folder / MANIFEST).write_text(canonical_json(facts))


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
