"""A bundle with one thing changed, and the checks of the ladder as plain functions to run on it."""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.schema import RUNGS
from conformance.findings import Finding
from conformance.judge import Judge


@dataclass(frozen=True, slots=True)
class Change:
    """What to change in one rung of one stack: arrays whose key matches, or lines of a series."""

    stack: str
    rung: str
    name: str  # regular expression over array keys, or a series
    edit: Callable
    lines: bool = False


class Tampered:
    """Reads like the bundle, but for one change; the first matching array is changed, or all lines are passed through."""

    def __init__(self, bundle: Bundle, change: Change):
        self._bundle, self._change = bundle, change

    def __getattr__(self, name: str):
        return getattr(self._bundle, name)

    def arrays(self, rung: str, prefix: str = "") -> dict[str, np.ndarray]:
        arrays = dict(self._bundle.arrays(rung))
        if rung == self._change.rung and not self._change.lines:
            key = next(key for key in arrays if re.fullmatch(self._change.name, key))
            arrays[key] = self._change.edit(np.array(arrays[key]))
        return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}

    def array(self, rung: str, key: str) -> np.ndarray:
        return self.arrays(rung)[key]

    def lines(self, rung: str, series: str) -> list[dict]:
        lines = self._bundle.lines(rung, series)
        if (rung, series) == (self._change.rung, self._change.name) and self._change.lines:
            return self._change.edit(lines)
        return lines

    @property
    def exchange(self) -> dict[str, np.ndarray]:
        arrays = dict(self._bundle.exchange)
        if self._change.rung == "exchange":
            key = next(key for key in arrays if re.fullmatch(self._change.name, key))
            arrays[key] = self._change.edit(np.array(arrays[key]))
        return arrays


def checks() -> dict[str, tuple[str, Callable]]:
    """Name -> (rung, function) of every check of the ladder."""
    found = {}
    for rung in RUNGS:
        if (Path(__file__).parents[1] / f"test_{rung}.py").exists():
            module = importlib.import_module(f"conformance.test_{rung}")
            members = inspect.getmembers(module, inspect.isfunction)
            found |= {name: (rung, one) for name, one in members if name.startswith("test_")}
    return found


def run_check(rung: str, check: Callable, reference, port, **fixtures) -> Finding:
    """The finding of one check on these two bundles."""
    judge = Judge(rung, check.__name__, inspect.getdoc(check).splitlines()[0])
    given = dict(judge=judge, reference=reference, port=port, stacks=(reference, port), **fixtures)
    wanted = inspect.signature(check).parameters
    if "exchanged" in wanted:
        given["exchanged"] = (reference.exchange, port.exchange)
    check(**{name: given[name] for name in wanted})
    return judge.finding


def array(rung: str, key: str, edit: Callable, stack: str = "port") -> Change:
    return Change(stack, rung, key, edit)


def every(rung: str, series: str, stack: str = "port", where: Callable = lambda line: True, **edits: Callable) -> Change:
    """Fields of every line that `where` selects are passed through their edit."""

    def edit(lines: list[dict]) -> list[dict]:
        return [line | {k: f(line[k]) for k, f in edits.items()} if where(line) else line for line in lines]

    return Change(stack, rung, series, edit, lines=True)


def first(rung: str, series: str, stack: str = "port", **edits: Callable) -> Change:
    """Fields of the first line are passed through their edit."""

    def edit(lines: list[dict]) -> list[dict]:
        return [lines[0] | {k: f(lines[0][k]) for k, f in edits.items()}, *lines[1:]]

    return Change(stack, rung, series, edit, lines=True)


def without_last(rung: str, series: str, stack: str = "port") -> Change:
    return Change(stack, rung, series, lambda lines: lines[:-1], lines=True)
