"""Does what a stack recorded match the schema? Each answer is one sentence: rung, key or field, what was found, what is allowed."""

import json
import math

import numpy as np

from conformance.contract.errors import ContractError
from conformance.contract.kinds import REDUCED_DIMS
from conformance.contract.schema import ARRAYS, CHOICES, LINES, array_spec, line_spec

TYPES = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "ints": list, "strs": list}
ITEMS = {"ints": int, "strs": str}


def check_array(rung: str, key: str, value: np.ndarray, *, large: bool = False) -> None:
    """Refuses an unknown key, another dtype, another number of dimensions, NaN and infinity.

    `large`: the array is in the reduced form of a large model's bundle.
    """
    spec = array_spec(rung, key)
    if spec is None:
        allowed = ", ".join(spec.key for spec in ARRAYS if spec.rung == rung) or "none"
        raise ContractError(f"{rung}: array {key!r} is not in the schema; allowed (regular expressions): {allowed}")
    dims, dtype = spec.dims, spec.dtype
    if large:
        dims, dtype = REDUCED_DIMS.get(spec.large, dims), "float64" if spec.large == "sketch" else dtype
    if dtype and value.dtype.name != dtype:
        raise ContractError(f"{rung}: array {key!r} is {value.dtype.name}, not {dtype}")
    if value.ndim != len(dims) or (dims[0] == "1" and value.shape[0] != 1):
        raise ContractError(f"{rung}: array {key!r} has shape {value.shape}, not [{','.join(dims)}]")
    if not _is_finite(value):
        raise ContractError(f"{rung}: array {key!r} holds NaN or infinity")


def _is_finite(value: np.ndarray) -> bool:
    if value.dtype.kind in "iub":
        return True
    return bool(np.isfinite(value if value.dtype.kind == "f" else value.astype(np.float32)).all())


def parse_line(rung: str, text: str, where: str, *, partial: bool = False) -> dict:
    """One line of RUNG.jsonl, checked; `where` ("FILE:LINE") begins every error."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON ({error}): {text[:60]!r}") from error
    if not isinstance(line, dict):
        raise ContractError(f"{where}: {text[:60]!r} is {type(line).__name__}, not an object with \"series\" and its fields")
    try:
        check_line(rung, line, partial=partial)
    except ContractError as error:
        raise ContractError(f"{where}: {error}") from error
    return line


def check_line(rung: str, line: dict, *, partial: bool = False) -> None:
    """Refuses an unknown series, a missing or unknown field, another type, NaN and infinity.

    `partial`: the rung is recorded in part, and fields may be absent.
    """
    spec = line_spec(rung, line.get("series", ""))
    if spec is None:
        allowed = ", ".join(spec.series for spec in LINES if spec.rung == rung) or "none"
        raise ContractError(f"{rung}: series {line.get('series')!r} is not in the schema; allowed: {allowed}")
    fields = set(line) - {"series"}
    odd = sorted(fields - set(spec.fields) if partial else fields ^ set(spec.fields))
    if odd:
        raise ContractError(f"{rung}: a line of {spec.series!r} has fields {sorted(fields)}; missing or unknown: {odd}")
    for name in fields:
        _check_field(rung, spec.series, name, spec.fields[name], line[name])


def _check_field(rung: str, series: str, name: str, kind: str, value: object) -> None:
    base, _, optional = kind.partition("|")
    if value is None and optional:
        return
    if type(value) is not TYPES[base]:
        raise ContractError(f"{rung}: {series}.{name} = {value!r} is {type(value).__name__}, not {base}")
    if base == "float" and not math.isfinite(value):
        raise ContractError(f"{rung}: {series}.{name} = {value!r} is not a finite number")
    wrong = [item for item in value if type(item) is not ITEMS[base]] if base in ITEMS else []
    if wrong:
        item = ITEMS[base].__name__
        raise ContractError(f"{rung}: {series}.{name} holds {wrong[0]!r}, which is {type(wrong[0]).__name__}; each item is {item}")
    allowed = CHOICES.get((rung, series, name))
    if allowed and value not in allowed:
        raise ContractError(f"{rung}: {series}.{name} = {value!r} is not one of {', '.join(allowed)}")
