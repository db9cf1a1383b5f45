"""What was measured: the bundles as they were opened, and what a report states of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.bench.bundle_files import MANIFEST, read_json
from conformance.bench.prices import PRICES
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import KIND
from conformance.contract.errors import ContractError
from conformance.gate.evidence import Evidence, Given, gather
from conformance.gate.values import STACKS

if TYPE_CHECKING:  # aiohttp and prometheus_client come with the extra `serving` alone: imported where a sweep is given
    from conformance.bench.measurements import Measurements


@dataclass(frozen=True, slots=True)
class Measured:
    """`trainings` and `sweeps`: (side, bundle), the reference first; a sweep's side is empty where nobody knows whose merge it served.

    `evidence`: the gate's. None: nothing was given.
    """

    trainings: tuple[tuple[str, TrainingMeasurements], ...] = ()
    sweeps: tuple[tuple[str, Measurements], ...] = ()
    evidence: Evidence | None = None
    prices: Path = PRICES


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured number: a mean over `n` launches or server starts with its 95 % interval; one alone has none."""

    name: str
    unit: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None


def find(estimates: tuple[Estimate, ...], name: str) -> Estimate | None:
    return next((one for one in estimates if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Training:
    """One side's timed launches. `launches`: outcome -> how many; `not_whole`: each that failed or was interrupted, and why.

    `price`: with source and date, or that there is none; `problem`: why there are no estimates; `formula`: of MFU.
    """

    name: str
    machine: str
    chips: int
    planned: int
    launches: dict[str, int]
    not_whole: tuple[str, ...]
    steps: int
    warm_up: int
    price: str
    estimates: tuple[Estimate, ...]
    problem: str
    target_loss: float | None
    formula: str

    def estimate(self, name: str) -> Estimate | None:
        return find(self.estimates, name)


@dataclass(frozen=True, slots=True)
class CellFacts:
    """`reasons`: why nothing of it may be compared."""

    name: str
    mode: str
    level: float
    input_tokens: int
    output_tokens: int
    saturated: bool
    reasons: tuple[str, ...]
    estimates: tuple[Estimate, ...]

    def estimate(self, name: str) -> Estimate | None:
        return find(self.estimates, name)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One side's server."""

    name: str
    machine: str
    starts: int
    price: str
    cells: tuple[CellFacts, ...]


@dataclass(frozen=True, slots=True)
class Advantage:
    """Port against reference in one cell: above 1 the port is better, of latencies, costs and rates alike.

    `metric`: as a claim names it; `reasons`: why it is withheld, by the gate.
    """

    name: str
    cell: str
    metric: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reasons: tuple[str, ...] = ()


def measured_of(given: Given) -> Measured:
    """Everything that can be opened, whether it may be compared or not: what can't, and why nothing may, the evidence says."""
    evidence = gather(given)
    trainings = tuple((stack, evidence.trainings.by_stack[stack]) for stack in STACKS if stack in evidence.trainings.by_stack)
    by_path = {one.path: (stack, one) for stack, one in (evidence.sweeps.by_stack if evidence.sweeps else {}).items()}
    sweeps = [by_path.get(path) or ("", sweep) for path in given.measurements for sweep in _sweep(path)]
    ordered = sorted(sweeps, key=lambda one: STACKS.index(one[0]) if one[0] else len(STACKS))
    return Measured(trainings, tuple(ordered), evidence, given.prices)


def _sweep(path: Path) -> Iterator[Measurements]:
    """None where it is of training or can't be opened."""
    if read_json(path / MANIFEST).get("kind") != KIND:
        from conformance.bench.measurements import Measurements

        try:
            yield Measurements(path)
        except ContractError:  # the evidence has told why
            return
