"""`parity bench`: time a stack's training, or show what was timed."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from conformance.bench.prices import Price, read_prices
from conformance.bench.speed_of_light import Machine, read_machine
from conformance.bench.training.checks import CLOCK, timed_is_recipe
from conformance.bench.training.figures import figures_of
from conformance.bench.training.folder import TrainingFolder, new_manifest
from conformance.bench.training.launcher import Launcher, launch_command, overview
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import FAILED
from conformance.bench.training.show import measurement_lines
from conformance.bench.validity import worst_of
from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan, make_plan
from conformance.contract.progress import Speaker
from conformance.contract.recipe import load_recipe
from conformance.findings import Verdict
from conformance.gate.lock import read_lock
from conformance.pair import MODULES
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED
from conformance.trajectories import series, summaries


def run(options: argparse.Namespace) -> int:
    _check(options)
    if options.show:
        measurements = TrainingMeasurements(options.show)
        return _print(measurements, make_plan(measurements.recipe), options)
    return _bench(options)


def _bench(options: argparse.Namespace) -> int:
    progress, plan = Speaker("bench"), make_plan(load_recipe(options.recipe))
    steps = plan.total_steps if options.steps is None else options.steps
    _check_steps(options, steps, plan)
    stack = options.foreign or MODULES[options.side]
    asked = {"machine": options.machine, "launches": options.launches, "steps": steps, "warm_up": options.warm_up}
    asked |= {"lock_sha256": read_lock(options.plan).digest} if options.plan else {}
    folder = TrainingFolder.begin(options.out, new_manifest(plan, side=options.side, stack=stack, **asked), plan)
    for line in overview(folder, plan, _machine(options.machine), _price(options.machine)):
        progress(line)
    try:
        Launcher(folder, launch_command(options.side, stack, options.foreign, Path.cwd()), progress).run()
    except KeyboardInterrupt:
        progress(f"stopped: whole launches are kept in {options.out}, the same command goes on at the next")
        raise
    return _print(TrainingMeasurements(options.out), plan, options)


def _check(options: argparse.Namespace) -> None:
    missing = [f"--{name}" for name in ("side", "recipe", "out") if getattr(options, name) is None]
    if missing and not options.show:
        raise ContractError(f"{missing[0]} is missing; a measurement needs --side, --recipe and --out (or --show DIR)")
    if options.launches < 1:
        raise ContractError(f"--launches {options.launches}: at least 1")
    if options.reference_bundle and options.reference_bench:
        raise ContractError("--reference-bundle and --reference-bench: give one of them")
    _machine(options.machine)


def _check_steps(options: argparse.Namespace, steps: int, plan: Plan) -> None:
    if not 1 <= steps <= plan.total_steps:
        raise ContractError(f"--steps {steps}: 1 to {plan.total_steps}, which the recipe has")
    if not 0 <= options.warm_up < steps:
        raise ContractError(f"--warm-up {options.warm_up}: 0 to {steps - 1}, so that a step of {steps} is timed")


def _print(measurements: TrainingMeasurements, plan: Plan, options: argparse.Namespace) -> int:
    name = measurements.manifest.machine or options.machine
    reference = _reference(options)
    target = options.target_loss or _target(reference, measurements)
    checks = timed_is_recipe(measurements, plan, reference)
    untrue = any(one.name == CLOCK and one.verdict is Verdict.FAIL for one in checks)
    figures = () if untrue else figures_of(measurements, _machine(name), target)
    _say(measurement_lines(measurements, figures, checks, target, _price(name)))
    if any(one.verdict is Verdict.FAIL for one in checks) or any(launch.outcome == FAILED for launch in measurements.launches):
        return CHECK_FAILED
    return ALL_PASS if worst_of(checks) is Verdict.PASS and not measurements.left else NOT_DECIDED


def _reference(options: argparse.Namespace) -> Bundle | TrainingMeasurements | None:
    if options.reference_bench:
        return TrainingMeasurements(options.reference_bench)
    return Bundle(options.reference_bundle) if options.reference_bundle else None


def _target(reference: Bundle | TrainingMeasurements | None, measurements: TrainingMeasurements) -> float | None:
    """The loss at which the reference's run ends, mean of its last tenth; of a run of fewer steps there is none."""
    if not isinstance(reference, Bundle):
        return None
    losses = series(reference, "f32", "loss")
    return float(summaries(losses)["last tenth"]) if len(losses) == measurements.manifest.steps else None


def _machine(name: str) -> Machine | None:
    return read_machine(name) if name else None


def _price(name: str) -> Price | None:
    return read_prices().get(name)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
