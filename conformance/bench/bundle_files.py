"""What measurement bundles share: a manifest with the digest of every other file, records as JSON, written beside and renamed."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record
from conformance.contract.whole_text import write_text

MANIFEST, LOGS = "manifest.json", "logs"
Record = TypeVar("Record")


def files_of(folder: Path) -> Iterator[Path]:
    """Of the bundle: not its manifest, logs, and what is hidden because it is half done."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts != (MANIFEST,) and parts[0] != LOGS and not any(part.startswith(".") for part in parts):
            yield path


def digests_below(folder: Path, *paths: Path) -> dict[str, str]:
    """Path below `folder` -> sha256."""
    return {str(path.relative_to(folder)): sha256_file(path) for path in paths}


def check_files(folder: Path, digests: dict[str, str]) -> None:
    """Refuses a bundle in which a file is missing, edited or not in the manifest."""
    found = {str(path.relative_to(folder)): path for path in files_of(folder)}
    for name, digest in digests.items():
        if name not in found:
            raise ContractError(f"measurements {folder}: {name} is missing")
        if sha256_file(found[name]) != digest:
            raise ContractError(f"measurements {folder}: {name} is not the file that was recorded (sha256 differs)")
    extra = sorted(set(found) - set(digests))
    if extra:
        raise ContractError(f"measurements {folder}: {extra[0]} is not in {MANIFEST}")


def read_manifest(folder: Path, record: type[Record], version: int) -> Record:
    """`record` has a field `version`; another one than `version` is refused."""
    file = folder / MANIFEST
    if not file.is_file():
        raise ContractError(f"measurements {folder}: no {MANIFEST} in it")
    values = read_json(file)
    if values.get("version") != version:
        raise ContractError(f"measurements {folder}: version {values.get('version')!r}; this suite reads {version}")
    return read_record(record, values, where=str(file))


def read_json(path: Path) -> dict:
    try:
        return parsed(path.read_text(), str(path))
    except UnicodeDecodeError as error:
        raise ContractError(f"{path}: not UTF-8: {error}") from error


def parsed(text: str, where: str) -> dict:
    """A JSON table; `null` says no more than that the key is absent."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ContractError(f"{where}: {text[:40]!r} is not a table")
    return {key: value for key, value in values.items() if value is not None}


def write_json(path: Path, record) -> None:
    write_text(path, canonical_json(given(record)))


def given(value):
    """Dataclasses as tables, without what has its default: JSON has no null here."""
    if dataclasses.is_dataclass(value):
        fields = [(one.name, getattr(value, one.name), one.default) for one in dataclasses.fields(value)]
        return {name: given(here) for name, here, default in fields if here is not None and here != default}
    return [given(one) for one in value] if isinstance(value, tuple) else value
