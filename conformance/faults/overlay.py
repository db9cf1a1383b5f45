"""A clean bundle with what was recorded anew under a fault on top."""

from functools import cached_property
from pathlib import Path

import numpy as np

from conformance.contract.bundle import Bundle

# (rung, series) -> the fields that say what a line is about, where a recording may hold only some of the series' lines.
PARTLY = {
    ("gradients", "norms"): ("variant", "precision"),
    ("logits", "dtypes"): ("precision",),
    ("trajectory", "run"): ("run",),
    ("trajectory", "step"): ("run",),
    ("checkpoint", "resume"): ("dropout", "save"),
    ("merge", "tensors"): ("adapter",),
    ("generation", "stops"): ("precision",),
    ("serving", "server"): ("serves",),
    ("serving", "weights"): ("serves",),
    ("serving", "reply"): ("of",),
    ("serving", "chat"): ("path",),
    ("sharding", "warm"): ("mesh",),
    ("sharding", "consumed"): ("mesh",),
    ("sharding", "step"): ("mesh",),
    ("sharding", "leaf"): ("mesh",),
    ("sharding", "fallback"): ("mesh",),
}

SERIES = {"adapters init": ("adapters", "own_init")}  # part -> its series, where the names differ


class Overlay:
    """Reads like the clean bundle. A group of arrays (the key up to its last `/`) comes from one of the two, never from both.

    `parts`: what was recorded anew, as a fault names it. A series that is a part of its own has no clean line left, also when
    nothing was recorded of it: a fault that finds no weight at all would look clean otherwise.
    """

    def __init__(self, clean: Bundle, faulty: Bundle, parts: tuple[str, ...] = ()):
        self._clean, self._faulty = clean, faulty
        self._whole = {SERIES.get(part, tuple(part.split(" ", 1))) for part in parts} - set(PARTLY)

    def __getattr__(self, name: str):
        return getattr(self._clean, name)

    def has(self, rung: str) -> bool:
        return self._clean.has(rung) or self._faulty.has(rung)

    def arrays(self, rung: str, prefix: str = "") -> dict[str, np.ndarray]:
        arrays = _on_top(self._clean.arrays(rung), self._faulty.arrays(rung))
        return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}

    def array(self, rung: str, key: str) -> np.ndarray:
        return self.arrays(rung)[key]

    def lines(self, rung: str, series: str) -> list[dict]:
        anew, fields = self._faulty.lines(rung, series), PARTLY.get((rung, series), ())
        if (rung, series) in self._whole or (anew and not fields):
            return anew
        about = {tuple(line[name] for name in fields) for line in anew}
        return [line for line in self._clean.lines(rung, series) if tuple(line[name] for name in fields) not in about] + anew

    @cached_property
    def exchange(self) -> dict[str, np.ndarray]:
        return _on_top(self._clean.exchange, self._faulty.exchange) if self._faulty.exchanged else self._clean.exchange

    def folder(self, name: str) -> Path:
        """A folder is recorded whole or not at all."""
        return next(bundle.folder(name) for bundle in (self._faulty, self._clean) if (bundle.path / name).is_dir())


def _on_top(clean: dict[str, np.ndarray], anew: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    groups = {_group(key) for key in anew}
    return {key: value for key, value in clean.items() if _group(key) not in groups} | anew


def _group(key: str) -> str:
    return key.rpartition("/")[0]
