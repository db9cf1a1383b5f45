"""What lies where in a package, and what of it the gate is given."""

from dataclasses import dataclass, field
from pathlib import Path

from conformance.bench.bundle_files import read_json
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record
from conformance.gate.evidence import Given
from conformance.gate.proof import Files
from conformance.gate.tuning import NAME as TUNING

VERSION = 1
MANIFEST, STATED = "package.json", "stated.jsonl"
PAIRS, MEASUREMENTS, CERTIFICATES = "pairs", "measurements", "certificates"
RECIPE, CHECKPOINT, SIDES = "recipe.toml", "checkpoint", ("reference", "port")
CLAIMS, PRICES, PLAN = "claims.toml", "prices.toml", "plan.toml"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files`: path -> sha256 of every file but this one. `left_out`: the same of weights that are too large to be in it.

    `code_sha256`: of the suite that made it; `values`: how many the report states.
    """

    version: int
    made: str
    code_sha256: str
    suite: str
    system: dict
    launches: tuple[str, ...]
    values: int
    files: dict
    left_out: dict = field(default_factory=dict)


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not path.is_file():
        raise ContractError(f"package {folder}: no {MANIFEST} in it: not a package of `parity package`")
    values = read_json(path)
    if values.get("version") != VERSION:
        raise ContractError(f"package {folder}: version {values.get('version')!r}; this suite reads {VERSION}")
    manifest = read_record(Manifest, values, where=str(path))
    outside = [name for name in (*manifest.files, *manifest.left_out) if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ContractError(f"package {folder}: {MANIFEST} names {outside[0]!r}, which is not inside")
    return manifest


def given_in(folder: Path) -> Given:
    """The folder's own files, in the order in which they were packed."""
    pairs = tuple(Files(one / RECIPE, *(one / side for side in SIDES)) for one in _inside(folder / PAIRS))
    optional = {name: folder / name if (folder / name).is_file() else None for name in (TUNING, PLAN)}
    measurements, certificates = (tuple(_inside(folder / name)) for name in (MEASUREMENTS, CERTIFICATES))
    return Given(pairs, measurements, certificates, folder / PRICES, *optional.values())


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
