"""What a launch came to: pure functions of the raw files."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.bench.intervals import Interval, geometric_mean
from conformance.bench.speed_of_light import Machine
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import Launch
from conformance.contract.errors import ContractError
from conformance.contract.timed_steps import TimedStep
from conformance.trajectories import steps_to


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """Of one launch. Step times and rates are of the steps after the warm-up; other times count from the launch of the process.

    `tokens_per_s`: all tokens without padding; `targets_per_s`: those that count in the loss; `to_target_s`: None where no target was
    given or the loss never reached it; `mfu`: None without a peak (a CPU has none); `padding`: share of positions.
    """

    number: int
    step_ms: float
    mean_step_ms: float
    tokens_per_s: float
    targets_per_s: float
    padding: float
    first_step_s: float
    train_s: float
    launch_s: float
    final_loss: float
    compile_s: float | None
    peak_memory_bytes: int | None
    memory_of: str
    to_target_s: float | None
    mfu: float | None


def figures_of(
    measurements: TrainingMeasurements, machine: Machine | None = None, target_loss: float | None = None
) -> tuple[LaunchFigures, ...]:
    """One for each whole launch. Refuses times that no clock gives, and a warm-up as long as the run."""
    return tuple(_figures(measurements, launch, machine, target_loss) for launch in measurements.whole)


def interval_of(figures: tuple[LaunchFigures, ...], name: str) -> Interval | None:
    """Geometric mean over launches with its 95 % interval; None where a launch lacks the figure, or has nothing of it."""
    values = [getattr(one, name) for one in figures]
    return geometric_mean(values) if values and all(values) and min(values) > 0 else None


def time_problems(launch: Launch, steps: tuple[TimedStep, ...]) -> Iterator[str]:
    """What no clock gives: a step that does not follow on the one before, takes no time, or lies outside the process's life."""
    for before, after in itertools.pairwise(steps):
        if after.start_ns != before.end_ns:
            yield f"step {after.step} begins {after.start_ns - before.end_ns} ns after the end of step {before.step}"
    for one in steps:
        if one.end_ns <= one.start_ns:
            yield f"step {one.step} takes {one.end_ns - one.start_ns} ns"
    if steps and not launch.spawned_ns < steps[0].start_ns < steps[-1].end_ns <= launch.ended_ns:
        yield "its steps lie outside the life of its process"


def seconds_to(launch: Launch, steps: tuple[TimedStep, ...], target_loss: float) -> float | None:
    """From the launch until the mean of a tenth of the run is at most the target; None: never."""
    needed = steps_to(np.asarray([step.loss for step in steps]), target_loss)
    return (steps[needed - 1].end_ns - launch.spawned_ns) / 1e9 if needed <= len(steps) else None


def _figures(measurements: TrainingMeasurements, launch: Launch, machine: Machine | None, target_loss: float | None) -> LaunchFigures:
    steps, manifest = measurements.steps(launch.number), measurements.manifest
    timed = steps[manifest.warm_up :]
    problems = [*time_problems(launch, steps), *([] if timed else [f"{len(steps)} steps, {manifest.warm_up} of them warm-up"])]
    if problems:
        raise ContractError(f"measurements {measurements.path}: launch {launch.number}: {problems[0]}")
    step_s = np.asarray([one.end_ns - one.start_ns for one in timed]) / 1e9
    rate = {name: sum(getattr(one, name) for one in timed) / step_s.sum() for name in ("tokens", "input_tokens", "padded_tokens")}
    return LaunchFigures(
        launch.number, 1e3 * float(np.median(step_s)), 1e3 * float(step_s.mean()), float(rate["input_tokens"]), float(rate["tokens"]),
        padding=float(1 - rate["input_tokens"] / rate["padded_tokens"]),
        first_step_s=(steps[0].end_ns - launch.spawned_ns) / 1e9,
        train_s=(steps[-1].end_ns - steps[0].start_ns) / 1e9,
        launch_s=(launch.ended_ns - launch.spawned_ns) / 1e9,
        final_loss=steps[-1].loss, compile_s=launch.compile_s, peak_memory_bytes=launch.peak_memory_bytes, memory_of=launch.memory_of,
        to_target_s=None if target_loss is None else seconds_to(launch, steps, target_loss),
        mfu=_mfu(measurements, timed, float(step_s.sum()), machine),
    )  # fmt: skip


def _mfu(measurements: TrainingMeasurements, timed: tuple[TimedStep, ...], seconds: float, machine: Machine | None) -> float | None:
    """On the chips that trained (flops.py has the formula); the steps' arithmetic is the plan's, which checks.py holds them to."""
    manifest = measurements.manifest
    if machine is None or manifest.platform == "cpu" or not manifest.flop:
        return None
    flop = sum(manifest.flop[one.step] for one in timed)
    return flop / (seconds * manifest.chips * machine.device.peak_flop_per_s)
