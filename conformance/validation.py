"""Is a folder a valid bundle, and what does it hold? Every problem is one sentence that names file, line and field."""

from dataclasses import dataclass
from pathlib import Path

from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.checkpoint_files import read_file
from conformance.contract.errors import ContractError
from conformance.contract.schema import ARRAYS, LINES, RUNGS, array_spec
from conformance.contract.validate import check_array, parse_line

MOST_PROBLEMS = 20  # a wrong recorder is wrong in every line


@dataclass(frozen=True, slots=True)
class RungContent:
    """What a bundle has of a rung. `without`: series of the schema that have no line here; not every stack has all of them.

    `partial`: why it is recorded in part, by the bundle's own word; empty for a whole rung.
    """

    rung: str
    arrays: int
    lines: int
    without: tuple[str, ...]
    partial: str


@dataclass(frozen=True, slots=True)
class Examined:
    bundle: Bundle
    rungs: tuple[RungContent, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]


def examine(path: Path) -> Examined:
    """Raises `ContractError` where the folder cannot be opened as a bundle at all; what is wrong inside comes as problems."""
    bundle, rungs, problems = Bundle(path), [], []
    for rung in bundle.rungs:
        keys, wrong = _arrays(bundle, rung)
        lines, odd = _lines(bundle, rung)
        problems += wrong + odd
        seen = {line["series"] for line in lines}
        without = tuple(spec.series for spec in LINES if spec.rung == rung and spec.series not in seen)
        rungs.append(RungContent(rung, len(keys), len(lines), without, bundle.partial.get(rung, "")))
        if not keys and not lines and not wrong + odd:
            problems.append(f"{bundle.path}: {rung} has a file and nothing in it")
    problems += _strange_files(bundle) + _unfounded_partials(bundle)
    missing = tuple(rung for rung in RUNGS if rung not in bundle.rungs and _in_schema(rung))
    return Examined(bundle, tuple(rungs), missing, tuple(problems[:MOST_PROBLEMS]))


def _in_schema(rung: str) -> bool:
    return any(spec.rung == rung for spec in (*ARRAYS, *LINES))


def _arrays(bundle: Bundle, rung: str) -> tuple[list[str], list[str]]:
    """(keys, problems)"""
    path = bundle.file(rung, ".safetensors")
    arrays, problems = read_file(path) if path.is_file() else {}, []
    for key, value in arrays.items():
        try:
            check_array(rung, key, value, large=bundle.large)
        except ContractError as error:
            problems.append(f"{path}: {error}")
    return list(arrays), problems + (_one_size(path, rung, arrays) if not problems and not bundle.large else [])


def _one_size(path: Path, rung: str, arrays: dict) -> list[str]:
    """A dimension's letter has one size within a rung: P, T, L, H, V, S, G, K; those of an adapter tensor are its own."""
    sizes: dict[str, tuple[int, str]] = {}
    problems = []
    for key, value in arrays.items():
        for letter, size in zip(array_spec(rung, key).dims, value.shape, strict=True):
            first, where = sizes.setdefault(letter, (size, key))
            if letter in "PLHVSGKNR" and size != first:
                problems.append(f"{path}: array {key!r} has {letter} = {size}, array {where!r} has {first}; they must be equal")
    return problems


def _lines(bundle: Bundle, rung: str) -> tuple[list[dict], list[str]]:
    """(valid lines, problems)"""
    path, lines, problems = bundle.file(rung, ".jsonl"), [], []
    texts = path.read_text().splitlines() if path.is_file() else []
    for number, text in enumerate(texts, 1):
        try:
            lines.append(parse_line(rung, text, f"{path}:{number}", partial=rung in bundle.partial))
        except ContractError as error:
            problems.append(str(error))
    return lines, problems


def _strange_files(bundle: Bundle) -> list[str]:
    """A misspelt rung would never be read; a file without a digest could be anybody's."""
    allowed = f"a rung's file is one of {', '.join(RUNGS)} with .jsonl or .safetensors"
    found = [path for path in sorted(bundle.path.iterdir()) if path.suffix in (".jsonl", ".safetensors")]
    strange = [f"{path}: {path.stem!r} is no rung: {allowed}" for path in found if path.stem not in RUNGS]
    listed = bundle.manifest["files"]
    return strange + [f"{path}: {MANIFEST} has no sha256 of it under \"files\"" for path in found if path.name not in listed]


def _unfounded_partials(bundle: Bundle) -> list[str]:
    where = f"{bundle.path}/manifest.json"
    return [f"{where}: partial names {rung!r}, which has no file" for rung in bundle.partial if rung not in bundle.rungs]
