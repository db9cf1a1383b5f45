"""Safetensors files and Hugging Face checkpoint folders as numpy arrays, memory-mapped; bfloat16 through ml_dtypes."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, serialize_file

from conformance.contract.errors import ContractError

DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
}
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def read_file(path: Path) -> dict[str, np.ndarray]:
    """All tensors of one file, memory-mapped (nothing is read until used)."""
    path = Path(path)
    try:
        header, start = _header(path)
        data = np.memmap(path, np.uint8, "r")[start:] if path.stat().st_size > start else np.zeros(0, np.uint8)
        return {name: _tensor(data, entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, OSError) as error:
        raise ContractError(f"{path}: not a whole safetensors file: {error}") from error


def read_metadata(path: Path) -> dict[str, str]:
    return _header(Path(path))[0].get("__metadata__", {})


def write_file(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Written beside and renamed: `path` is whole or absent."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    partial = path.with_name(f".{path.name}.partial")
    try:
        entries = {name: _entry(value, names) for name, value in sorted(tensors.items())}
        serialize_file(entries, str(partial), metadata)
    except (SafetensorError, KeyError) as error:
        raise ContractError(f"{path}: cannot be written: {error}") from error
    partial.rename(path)


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint folder, one file or sharded by its index."""
    folder = Path(folder)
    tensors: dict[str, np.ndarray] = {}
    for name in shard_names(folder):
        tensors |= read_file(folder / name)
    missing = sorted(set(_weight_map(folder)) - set(tensors))
    if missing:
        raise ContractError(f"checkpoint {folder}: its index names {missing[0]}, which no shard holds ({len(missing)} missing)")
    return tensors


def shard_names(folder: Path) -> list[str]:
    names = sorted(set(_weight_map(folder).values())) or [SINGLE]
    for name in names:
        if not (folder / name).is_file():
            raise ContractError(f"checkpoint {folder}: no {name} in it")
    return names


def write_checkpoint(folder: Path, tensors: Mapping[str, np.ndarray], *, like: Path) -> None:
    """`tensors` as a checkpoint split like `like`: same shards, rewritten index, metadata format pt, config and tokenizer files.

    `folder` must not exist; it is written beside its name and renamed. One shard is in memory at a time when `tensors` is lazy.
    """
    if folder.exists():
        raise ContractError(f"checkpoint {folder}: already there; choose a new folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in like.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and path.name != INDEX:
            shutil.copyfile(path, partial / path.name)
    shards = {name: list(read_file(like / name)) for name in shard_names(like)}
    for name, keys in shards.items():
        write_file(partial / name, {key: tensors[key] for key in keys}, {"format": "pt"})
    if len(shards) > 1:
        _write_index(partial, shards)
    partial.rename(folder)


def _write_index(folder: Path, shards: dict[str, list[str]]) -> None:
    files = {name: read_file(folder / name) for name in shards}
    total = sum(value.nbytes for tensors in files.values() for value in tensors.values())
    count = sum(value.size for tensors in files.values() for value in tensors.values())
    weight_map = {key: name for name, tensors in files.items() for key in tensors}
    index = {"metadata": {"total_parameters": count, "total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX
    return json.loads(path.read_text())["weight_map"] if path.is_file() else {}


def _header(path: Path) -> tuple[dict, int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
        if not 0 < length <= size - 8:
            raise ContractError(f"{path}: not a whole safetensors file: header of {length} bytes in a file of {size}")
        return json.loads(file.read(length)), 8 + length


def _tensor(data: np.ndarray, entry: dict) -> np.ndarray:
    start, end = entry["data_offsets"]
    if end > data.size:
        raise ValueError(f"a tensor ends at byte {end}, the data at {data.size}")
    return data[start:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _entry(value: np.ndarray, names: dict) -> dict:
    return {"dtype": _long_name(names[value.dtype]), "shape": list(value.shape), "data": np.ascontiguousarray(value).tobytes()}


def _long_name(short: str) -> str:
    """The writer's spelling of a dtype ("float32"), where the file's header has its own ("F32")."""
    return {"BF16": "bfloat16", "BOOL": "bool"}.get(short, DTYPES[short].name)
