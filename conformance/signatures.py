"""The recorded signatures of planted faults: what a failure is compared with (matching.py)."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from conformance.contract.whole_text import write_text
from conformance.matching import Signature, Traits

FILE = Path(__file__).parent / "faults" / "signatures.json"


@cache
def read_signatures(path: Path = FILE) -> dict[str, dict[str, Traits]]:
    """Fault -> its signature."""
    return {fault: {check: _traits(values) for check, values in checks.items()} for fault, checks in _read(path)["faults"].items()}


@cache
def recipe_of_signatures(path: Path = FILE) -> str:
    """Digest of the recipe that they were recorded with."""
    return _read(path)["recipe"]


def write_signatures(path: Path, recipe: str, signatures: Mapping[str, Signature]) -> None:
    """A line a fault, written beside and renamed."""
    lines = (f"{json.dumps(fault)}: {json.dumps(_plain(signature))}" for fault, signature in signatures.items())
    write_text(path, f'{{"recipe": {json.dumps(recipe)},\n"faults": {{\n' + ",\n".join(lines) + "\n}}\n")


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


def _plain(signature: Signature) -> dict:
    """Without what is empty."""
    return {check: {name: _text(value) for name, value in asdict(one).items() if _is_known(value)} for check, one in signature.items()}


def _is_known(value) -> bool:
    return value not in ((), {}, None)


def _text(value):
    return " ".join(value) if isinstance(value, tuple) else value


def _traits(values: dict) -> Traits:
    return Traits(**{name: tuple(value.split()) if isinstance(value, str) else value for name, value in values.items()})
