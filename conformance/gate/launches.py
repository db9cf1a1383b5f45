"""The launches of one training measurement: whether each is a whole run of its own, all are there, and its times can be true."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from conformance.bench.training.checks import timed_is_recipe
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import FAILED, INTERRUPTED, Launch
from conformance.bench.validity import open_checks
from conformance.contract.bundle import Bundle
from conformance.contract.plan import Plan
from conformance.contract.timed_steps import TimedStep

LEAST = 5  # launches a side (DESIGN.md, Statistics)
MOST_WARM_UP = 0.5  # of all steps
WARM = 2.0  # a first timed step of so many times the median, on most launches, is still warming up


def seconds_of(one: TrainingMeasurements) -> list[float]:
    """End of warm-up to end of the last step, one a whole launch: what lies between steps is in it, compilation is not."""
    runs = [one.steps(launch.number) for launch in one.whole]
    return [(steps[-1].end_ns - steps[one.manifest.warm_up - 1].end_ns) / 1e9 for steps in runs]


def whole_seconds_of(one: TrainingMeasurements) -> list[float]:
    """Life of each whole launch's process."""
    return [(launch.ended_ns - launch.spawned_ns) / 1e9 for launch in one.whole]


def step_ms_of(one: TrainingMeasurements) -> float:
    """Median over launches of the mean step after warm-up."""
    timed = one.manifest.steps - one.manifest.warm_up
    return 1e3 * statistics.median(seconds_of(one)) / timed


def launch_reasons(
    one: TrainingMeasurements, plan: Plan, planned_steps: int | None, reference: Bundle | TrainingMeasurements
) -> Iterator[str]:
    """`reference`: its bundle, or with dropout its own timed launches: what the timed losses are held against."""
    yield from _steps_planned(one, plan, planned_steps)
    yield from _warm_up_planned(one)
    yield from _missing(one)
    yield from _same_process(one.launches)
    runs = {launch.number: one.steps(launch.number) for launch in one.whole}
    yield from _copies(runs)
    yield from map(str, open_checks(timed_is_recipe(one, plan, reference)))
    yield from _still_warming(one, runs)


def _steps_planned(one: TrainingMeasurements, plan: Plan, planned_steps: int | None) -> Iterator[str]:
    timed = one.manifest.steps
    if timed > plan.total_steps:
        yield f"{timed} steps timed; the recipe has {plan.total_steps}"
    elif timed < plan.total_steps and planned_steps is None:
        yield f"{timed} of the recipe's {plan.total_steps} steps timed: fewer are enough only where a locked plan says so (--plan)"
    elif timed < (planned_steps or 0):
        yield f"{timed} steps timed; the locked plan says {planned_steps}"


def _warm_up_planned(one: TrainingMeasurements) -> Iterator[str]:
    warm_up, steps = one.manifest.warm_up, one.manifest.steps
    if warm_up < 1:
        yield f"warm-up left in: warm_up = {warm_up}, so the first step, which compiles, is in the figure"
    elif warm_up > MOST_WARM_UP * steps:
        yield f"warm_up = {warm_up} of {steps} steps: which steps are timed is a choice; at most {MOST_WARM_UP:.0%} may be left out"


def _missing(one: TrainingMeasurements) -> Iterator[str]:
    """Launches that were planned and are not there, or did not end well: what is left may be a choice."""
    numbers = [launch.number for launch in one.launches]
    gaps = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
    if gaps:
        yield f"launch {gaps[0]} is missing: numbers run to {numbers[-1]} with {len(gaps)} gaps (cherry-picked?)"
    counted = sum(launch.outcome != INTERRUPTED for launch in one.launches)
    if counted != one.manifest.launches:
        yield f"{one.manifest.launches} launches planned, {counted} found (cherry-picked?)"
    yield from (f"launch {one.number} failed: {one.reason or 'no reason given'}" for one in one.launches if one.outcome == FAILED)
    for launch in one.launches:
        if launch.outcome == INTERRUPTED and len(one.steps(launch.number)) > one.manifest.warm_up:
            yield f"launch {launch.number} was interrupted after its warm-up: its speed was seen before it was dropped"
    if len(one.whole) < LEAST:
        yield f"{len(one.whole)} whole launches; {LEAST} are needed"


def _same_process(launches: Sequence[Launch]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for launch in launches:
        if not launch.process:
            yield f"launch {launch.number} does not say which process it was"
        elif launch.process in seen:
            yield f"one run copied: launch {launch.number} is the process of launch {seen[launch.process]} ({launch.process})"
        seen.setdefault(launch.process, launch.number)
    lives = sorted((_boot(launch), launch.spawned_ns, launch.ended_ns, launch.number) for launch in launches)
    for (boot, _, ended, a), (other, spawned, _, b) in pairwise(lives):
        if boot == other and spawned < ended:
            yield f"launches {a} and {b} ran at the same time"


def _boot(launch: Launch) -> str:
    """A monotonic clock is that of one boot."""
    return launch.process.split("/", 1)[0]


def _copies(runs: dict[int, tuple[TimedStep, ...]]) -> Iterator[str]:
    """No two runs take the same nanoseconds at every step."""
    seen: dict[tuple, int] = {}
    for number, steps in runs.items():
        times = tuple(step.end_ns - step.start_ns for step in steps)
        if len(times) > 1 and times in seen:
            yield f"one run copied: launch {number} has the raw times of launch {seen[times]}"
        seen.setdefault(times, number)


def _still_warming(one: TrainingMeasurements, runs: dict[int, tuple[TimedStep, ...]]) -> Iterator[str]:
    """The first step that is timed against the median of those after it."""
    warm_up = one.manifest.warm_up
    times = [[step.end_ns - step.start_ns for step in steps[warm_up:]] for steps in runs.values()]
    slow = [own[0] / statistics.median(own) for own in times if own and statistics.median(own) > 0]
    if slow and warm_up >= 1 and statistics.median(slow) > WARM:
        yield f"warm-up left in: step {warm_up}, the first that is timed, takes {statistics.median(slow):.1f} times the median step"


