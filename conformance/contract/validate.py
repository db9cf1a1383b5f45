"""Does what a stack recorded match the schema? Each answer is one sentence that names rung, key and what is allowed."""

import math

import numpy as np

from conformance.contract.errors import ContractError
from conformance.contract.kinds import REDUCED_DIMS
from conformance.contract.schema import array_spec, line_spec

TYPES = {"int": int, "float": float, "str": str, "bool": bool, "list": list}


def check_array(rung: str, key: str, value: np.ndarray, *, large: bool = False) -> None:
    """Refuses an unknown key, another dtype, another number of dimensions, NaN and infinity.

    `large`: the array is in the reduced form of a large model's bundle.
    """
    spec = array_spec(rung, key)
    if spec is None:
        raise ContractError(f"{rung}: array {key!r} is not in the schema")
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


def check_line(rung: str, line: dict) -> None:
    """Refuses an unknown series, a missing or unknown field, another type, NaN and infinity."""
    spec = line_spec(rung, line.get("series", ""))
    if spec is None:
        raise ContractError(f"{rung}: series {line.get('series')!r} is not in the schema")
    fields = set(line) - {"series"}
    if fields != set(spec.fields):
        odd = sorted(fields ^ set(spec.fields))
        raise ContractError(f"{rung}: a line of {spec.series!r} has fields {sorted(fields)}; missing or unknown: {odd}")
    for name, kind in spec.fields.items():
        _check_field(rung, spec.series, name, kind, line[name])


def _check_field(rung: str, series: str, name: str, kind: str, value: object) -> None:
    base, _, optional = kind.partition("|")
    if value is None and optional:
        return
    if type(value) is not TYPES[base]:
        raise ContractError(f"{rung}: {series}.{name} = {value!r} is {type(value).__name__}, not {base}")
    if base == "float" and not math.isfinite(value):
        raise ContractError(f"{rung}: {series}.{name} = {value!r} is not a finite number")
