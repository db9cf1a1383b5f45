"""TOML tables into frozen dataclasses, with errors that name the key, the value and what is allowed."""

import dataclasses
import functools
import types
import typing
from typing import Any, Literal

from conformance.contract.errors import ContractError


def read_record(record: type, values: Any, *, where: str, prefix: str = "", skip: tuple[str, ...] = ()) -> Any:
    """One table into `record`. `where` names the file, `prefix` the table inside it."""
    if not isinstance(values, dict):
        raise ContractError(f"{where}: {prefix.rstrip('.')} = {values!r} is not a table")
    fields = {field.name: field for field in dataclasses.fields(record) if field.name not in skip}
    for key in values:
        if key not in fields:
            raise ContractError(f"{where}: unknown key {prefix}{key}; allowed: {', '.join(fields)}")
    hints = _hints(record)
    read = {key: _read(hints[key], value, where, prefix + key) for key, value in values.items()}
    for name, field in fields.items():
        if name not in read and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ContractError(f"{where}: {prefix}{name} is missing")
    return record(**read)


@functools.cache
def _hints(record: type) -> dict[str, Any]:
    """Once a record: a measurement has a hundred thousand lines of one."""
    return typing.get_type_hints(record)


def _read(hint: Any, value: Any, where: str, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_record(hint, value, where=where, prefix=key + ".")
    if typing.get_origin(hint) is Literal:
        return _one_of(typing.get_args(hint), value, where, key)
    if typing.get_origin(hint) is tuple:
        return _items(typing.get_args(hint)[0], value, where, key)
    if isinstance(hint, types.UnionType):  # `float | None`: TOML has no null, "none" stands for it; JSON has one
        return None if value in ("none", None) else _read(typing.get_args(hint)[0], value, where, key)
    return _plain(hint, value, where, key)


def _one_of(allowed: tuple, value: Any, where: str, key: str) -> Any:
    if value not in allowed:
        raise ContractError(f"{where}: {key} = {value!r} is not one of {', '.join(map(repr, allowed))}")
    return value


def _items(item: Any, value: Any, where: str, key: str) -> tuple:
    if not isinstance(value, list):
        raise ContractError(f"{where}: {key} = {value!r} is not a list")
    if item in (int, str) and set(map(type, value)) <= {item}:  # raw events have thousands: no word for each
        return tuple(value)
    return tuple(_read(item, element, where, f"{key}[{index}]") for index, element in enumerate(value))


def _plain(hint: type, value: Any, where: str, key: str) -> Any:
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise ContractError(f"{where}: {key} = {value!r} is {type(value).__name__}, not {hint.__name__}")
    if hint is float and not abs(value) < float("inf"):
        raise ContractError(f"{where}: {key} = {value!r} is not a finite number")
    return value
