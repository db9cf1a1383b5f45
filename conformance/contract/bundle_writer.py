"""Writing bundles: whole or absent. Phases and rungs may join a bundle later, each with a manifest of its own."""

import os
import shutil
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from conformance.contract.bundle import EXCHANGE, MANIFEST, Bundle
from conformance.contract.checkpoint_files import write_file
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.kinds import reduce
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.schema import RUNGS, VERSION, array_spec
from conformance.contract.sizes import is_large
from conformance.contract.validate import check_array, check_line


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


def _write_rungs(folder: Path, arrays: dict, lines: dict) -> None:
    for rung, values in arrays.items():
        write_file(folder / f"{rung}.safetensors", values)
    for rung, values in lines.items():
        (folder / f"{rung}.jsonl").write_text("".join(canonical_json(line) + "\n" for line in values))


def _write_manifest(folder: Path, facts: dict) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = facts | {"files": {str(path.relative_to(folder)): sha256_file(path) for path in files}}
    (folder / MANIFEST).write_text(canonical_json(facts))
