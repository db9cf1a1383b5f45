"""Every value that a report states, by its name: a walk through its facts, so that none can be forgotten."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.contract.digest import canonical_json
from conformance.contract.errors import ContractError

Leaf = str | float | int | bool | None
KEYS = ("name", "rung", "check", "cell")  # fields that tell one item of a list from others
TOLERANCE = 1e-6  # relative: other machines' BLAS and scipy round otherwise; a report shows three digits


def stated(facts: Any) -> dict[str, Leaf]:
    """Numbers, verdicts and texts; a number that is none (NaN) as its word."""
    return dict(_walk(facts, ""))


def differs(a: Leaf, b: Leaf) -> bool:
    if isinstance(a, float | int) and isinstance(b, float | int) and not isinstance(a, bool):
        return not math.isclose(a, b, rel_tol=TOLERANCE)
    return a != b


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same facts with each text changed."""
    if isinstance(value, str) and type(value) is str:
        return change(value)
    if isinstance(value, tuple):
        return tuple(with_texts(one, change) for one in value)
    if isinstance(value, Mapping):
        return {name: with_texts(one, change) for name, one in value.items()}
    if dataclasses.is_dataclass(value):
        fields = {field.name: with_texts(getattr(value, field.name), change) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def write_stated(path: Path, values: dict[str, Leaf]) -> None:
    """JSON Lines, one value a line."""
    path.write_text("".join(canonical_json({"name": name, "value": value}) + "\n" for name, value in values.items()))


def read_stated(path: Path) -> dict[str, Leaf]:
    """Refuses what it does not write: a line that is no JSON, or a name that comes twice."""
    found: dict[str, Leaf] = {}
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            line = json.loads(text)
            name, value = line["name"], line["value"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ContractError(f"{path}:{number}: not a stated value: {error}") from error
        if name in found:
            raise ContractError(f"{path}:{number}: {name} is stated twice")
        found[name] = value
    return found


def _walk(value: Any, name: str) -> Iterator[tuple[str, Leaf]]:
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _walk(one, f"{name} > {key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for label, one in zip(_labels(value), value, strict=True):
            yield from _walk(one, f"{name} > {label}")
    else:
        yield name, str(value) if isinstance(value, str) or _is_no_number(value) else value


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _labels(values: list | tuple) -> Iterator[str]:
    """By what an item calls itself, else by its place; a second one of the same name with its number."""
    seen: Counter[str] = Counter()
    for place, value in enumerate(values, 1):
        label = _label(value) or str(place)
        seen[label] += 1
        yield label if seen[label] == 1 else f"{label} ({seen[label]})"


def _label(value: Any) -> str:
    about = getattr(value, "summary", value)  # a rung's section is called as its summary
    found = [str(getattr(about, key)) for key in KEYS if isinstance(getattr(about, key, None), str)]
    return found[-1] if hasattr(about, "check") and found else (found[0] if found else "")
