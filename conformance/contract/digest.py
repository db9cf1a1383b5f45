"""Digests of arrays, files and plain values. All are sha256 in lower-case hex."""

import hashlib
import json
from pathlib import Path

import numpy as np


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tensor_bytes(array: np.ndarray) -> bytes:
    """Row-major bytes of `array`: two arrays of one dtype and shape have equal bytes when equal bit for bit."""
    return np.ascontiguousarray(array).tobytes()


def sha256_array(array: np.ndarray) -> str:
    """Digest over dtype, shape and bytes, so that a reshaped or recast tensor never matches."""
    head = f"{array.dtype.name}{list(array.shape)}".encode()
    return sha256_bytes(head + tensor_bytes(array))


def sha256_file(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the form that digests are taken over. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_json(value: object) -> str:
    return sha256_bytes(canonical_json(value).encode())


def sha256_tree(folder: Path, pattern: str = "*.py") -> str:
    """Digest of every file below `folder` that matches, by relative name and content: the digest of a stack's code."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    return sha256_json({str(path.relative_to(folder)): sha256_file(path) for path in files})
