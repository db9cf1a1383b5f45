"""The cells of a sweep, from a TOML file: one arrival pattern at one level and one length each, the same for every platform."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from conformance.bench.arrivals import Schedule, burst, closed_loop, poisson
from conformance.bench.figures import Objective
from conformance.bench.load import Load
from conformance.bench.prompts import BLOCK_TOKENS, draw_prompts, prompts_digest
from conformance.contract.digest import sha256_json
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, silent
from conformance.contract.toml_records import read_record

UNIT = {"open": "requests/s", "burst": "requests at once", "closed": "under way"}


@dataclass(frozen=True, slots=True)
class Group:
    """Cells of one mode. A level is a rate in requests/s (open), the number of requests (burst), or how many are under way (closed).

    A cell has `requests`, or `requests_per_level` x its level where that is more; a burst's number is its level.
    """

    mode: Literal["open", "burst", "closed"]
    levels: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: int
    length: Literal["fixed", "natural"] = "fixed"
    requests: int = 1
    requests_per_level: float = 0.0

    def requests_of(self, level: float) -> int:
        return int(level) if self.mode == "burst" else max(self.requests, math.ceil(self.requests_per_level * level))

    @property
    def problems(self) -> Iterator[tuple[str, str]]:
        """(key, what is allowed) of values that no cell can have."""
        if not self.levels or min(self.levels) <= 0 or list(self.levels) != sorted(set(self.levels)):
            yield "levels", "numbers above 0 that rise"
        elif self.mode != "open" and any(level != int(level) for level in self.levels):
            yield "levels", f"whole numbers: {self.mode} counts requests"
        elif self.mode == "closed" and any(self.requests_of(level) < level for level in self.levels):
            yield "requests", f"at least as many as are under way, here {max(self.levels):g}; or requests_per_level >= 1"
        if not self.input_tokens or min(self.input_tokens) < 1:
            yield "input_tokens", "lengths of at least 1"
        for name, least in (("output_tokens", 1), ("requests", 1), ("requests_per_level", 0)):
            if getattr(self, name) < least:
                yield name, f"at least {least}"


@dataclass(frozen=True, slots=True)
class Cell:
    """Its requests: so many, at this level, of this length; `seed` is its own."""

    mode: Literal["open", "burst", "closed"]
    level: float
    input_tokens: int
    output_tokens: int
    length: Literal["fixed", "natural"]
    requests: int
    seed: int

    @property
    def name(self) -> str:
        """Also the name of its folder."""
        return f"{self.mode}-{self.level:g}-in{self.input_tokens}-out{self.output_tokens}-{self.length}"

    @property
    def series(self) -> tuple:
        """Cells that differ in their level alone."""
        return self.mode, self.input_tokens, self.output_tokens, self.length

    @property
    def schedule(self) -> Schedule:
        if self.mode == "open":
            return poisson(self.level, self.requests, self.seed)
        return burst(self.requests) if self.mode == "burst" else closed_loop(int(self.level), self.requests)

    def prompts(self, tokens: np.ndarray) -> np.ndarray:
        """int32 [requests, input_tokens]"""
        return draw_prompts(tokens, self.requests, self.input_tokens, self.seed)

    def load(self, tokens: np.ndarray) -> Load:
        return Load(self.schedule, self.prompts(tokens), self.output_tokens, self.length == "fixed")

    def warm_up(self, tokens: np.ndarray, requests: int) -> Load:
        """The same lengths all at once, other prompts; measured by nobody."""
        return Load(burst(requests), draw_prompts(tokens, requests, self.input_tokens, self.seed + 1), self.output_tokens, True)

    def digest(self, prompts: np.ndarray) -> str:
        """Equal on two platforms when both are sent the same at the same times."""
        lengths = {"output_tokens": self.output_tokens, "length": self.length}
        return sha256_json({"schedule": self.schedule.digest, "prompts": prompts_digest(prompts)} | lengths)


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole file. `warm_up_requests` go before each cell; goodput counts replies that keep an objective."""

    seed: int
    groups: tuple[Group, ...]
    warm_up_requests: int = 8
    objectives: tuple[Objective, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """In the order in which they are measured: rates of a length rise, so that the first saturated one ends its series."""
        return tuple(
            self._cell(group, level, input_tokens)
            for group in self.groups
            for input_tokens in group.input_tokens
            for level in group.levels
        )

    def _cell(self, group: Group, level: float, input_tokens: int) -> Cell:
        parts = group.mode, float(level), input_tokens, group.output_tokens, group.length, group.requests_of(level)
        # Even: seed + 1 is the warm-up's. 52 bits: every JSON reader keeps them.
        return Cell(*parts, seed=2 * int(sha256_json([self.seed, *parts])[:13], 16))


def read_plan(path: Path) -> Plan:
    """Errors name the file, the key, its value and what is allowed."""
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractError(f"cells {path}: {error}") from error
    plan = read_record(Plan, values, where=str(path))
    for index, group in enumerate(plan.groups):
        for key, allowed in group.problems:
            value = getattr(group, key)
            shown = list(value) if isinstance(value, tuple) else value
            raise ContractError(f"{path}: groups[{index}].{key} = {shown!r}; allowed: {allowed}")
    if not plan.groups or plan.warm_up_requests < 1:
        counts = f"{len(plan.groups)} groups, warm_up_requests = {plan.warm_up_requests}"
        raise ContractError(f"{path}: {counts}; allowed: at least 1 of each")
    names = [cell.name for cell in plan.cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ContractError(f"{path}: cell {twice[0]} is asked for twice; allowed: once")
    return plan


def digests_of(plan: Plan, tokens: np.ndarray, progress: Progress = silent) -> dict[str, str]:
    """Cell -> digest. Refuses a plan in which two prompts of a server start, warm-ups included, have the same first block."""
    digests, seen = {}, set()
    for cell in plan.cells:
        prompts = cell.prompts(tokens)
        digests[cell.name] = cell.digest(prompts)
        for load in (prompts, cell.warm_up(tokens, plan.warm_up_requests).prompts):
            heads = {row[:BLOCK_TOKENS].tobytes() for row in load}
            if seen & heads:
                raise ContractError(f"cell {cell.name}: a prompt begins as an earlier one does; choose another seed than {plan.seed}")
            seen |= heads
    progress(f"{len(digests)} cells, {len(seen)} prompts, no two with the same first {BLOCK_TOKENS} tokens")
    return digests
