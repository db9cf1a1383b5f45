"""How much launches and server starts scatter, and what they take: from the measurements of a pilot."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from conformance.bench.training.measurements import TrainingMeasurements
from conformance.contract.errors import ContractError
from conformance.gate.launches import seconds_of

CAUTION = 0.8  # a variance that few launches show is taken at this one-sided confidence: their own value is too small half of the time
FEWEST = 2  # launches or starts, or nothing is known of their spread
RESAMPLES = 200
START_S = 600.0  # of a server, which no sweep records: until it answers, ten minutes are assumed


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one side, of logarithms: `between` launches or starts, `within` one of them for a single step or request (variances).

    `setup_s`: of each launch or start; `each_s`: of a step or request; `most`: steps or requests that one can have, of which `warm_up`
    are in no figure.
    """

    machine: str
    between: float
    within: float
    setup_s: float
    each_s: float
    most: int
    warm_up: int = 0

    def sd(self, count: int) -> float:
        """Of one launch or start of so many steps or requests."""
        return float(np.sqrt(self.between + self.within / (count - self.warm_up)))

    def seconds(self, runs: int, count: int) -> float:
        return runs * (self.setup_s + count * self.each_s)


def training_spread(one: TrainingMeasurements, most: int) -> Spread:
    """`most`: steps of the recipe. What a step's own rows cost is alike in all launches, and scatters nothing: it is taken out."""
    launches, warm_up, steps = one.whole, one.manifest.warm_up, one.manifest.steps
    if len(launches) < FEWEST or steps - warm_up < FEWEST:
        raise ContractError(f"pilot {one.path}: {len(launches)} whole launches of {steps} steps; {FEWEST} of each are needed")
    runs = [one.steps(launch.number) for launch in launches]
    logs_LS = np.log([[step.end_ns - step.start_ns for step in run[warm_up:]] for run in runs])
    each_s = float(np.mean(seconds_of(one))) / (steps - warm_up)
    lives = [(launch.ended_ns - launch.spawned_ns) / 1e9 for launch in launches]
    setup_s = max(0.0, float(np.mean(lives)) - each_s * steps)
    return Spread(one.manifest.machine, *_variances(logs_LS), setup_s, each_s, most, warm_up)


def serving_spread(sweep) -> Spread:
    """Of the cell whose TTFT scatters most: its median a start, and how far that would move with other requests of the same start."""
    cells = [cell for cell in sweep.plan.cells if cell.mode == "open" and all(sweep.has(number, cell) for number in sweep.replicates)]
    runs = {cell: [sweep.read(number, cell).run for number in sweep.replicates] for cell in cells}
    runs = {cell: found for cell, found in runs.items() if all(found)}
    if not runs or len(sweep.replicates) < FEWEST:
        found = f"{len(sweep.replicates)} starts with {len(runs)} open cells"
        raise ContractError(f"pilot {sweep.path}: {found}; {FEWEST} starts of at least one are needed")
    spreads = [_cell_spread(sweep.manifest.subject.machine, cell, found) for cell, found in runs.items()]
    each_s = sum(spread.each_s for spread in spreads)
    worst = max(spreads, key=lambda spread: spread.sd(spread.most))
    return Spread(worst.machine, worst.between, worst.within, START_S, each_s, most=10 * worst.most)


def _cell_spread(machine: str, cell, runs: Sequence) -> Spread:
    from conformance.bench.events import whole
    from conformance.bench.figures import ttft_ms

    values = [np.array([ttft_ms(record) for record in whole(run.records)]) for run in runs]
    if any(len(one) < FEWEST or min(one) <= 0 for one in values):
        raise ContractError(f"pilot: cell {cell.name} has too few whole replies")
    draw, n = np.random.default_rng(0), min(map(len, values))
    moved = [np.var(np.log(np.median(draw.choice(one, (RESAMPLES, len(one))), axis=1)), ddof=1) * len(one) for one in values]
    medians, within = np.log([np.median(one) for one in values]), float(np.mean(moved))
    return Spread(machine, _between(np.var(medians, ddof=1), within / n, len(values)), within, 0.0, 1 / cell.level, n)


def _variances(logs_LS: np.ndarray) -> tuple[float, float]:
    """(between, within) of launches L, without what the steps S have in common. Steps are taken as independent."""
    n, steps = logs_LS.shape
    launches_L1 = logs_LS.mean(1, keepdims=True)
    rest_LS = logs_LS - launches_L1 - logs_LS.mean(0, keepdims=True) + logs_LS.mean()
    within = float(np.square(rest_LS).sum() / ((n - 1) * (steps - 1)))
    return _between(np.var(launches_L1, ddof=1), within / steps, n), within


def _between(of_means: float, from_within: float, n: int) -> float:
    """The variance of so many groups' means, at its upper confidence limit (chi-square), less what comes from within them."""
    upper = of_means * (n - 1) / stats.chi2.ppf(1 - CAUTION, n - 1)
    return max(0.0, float(upper) - from_within)
