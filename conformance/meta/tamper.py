"""A bundle with one thing changed."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.contract.bundle import Bundle


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
