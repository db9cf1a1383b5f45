"""Whether the runs that were timed are the recipe: what each step took is the plan's, and the losses are the reference's."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from conformance.bench.training.figures import time_problems
from conformance.bench.training.flops import step_flop
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import Launch
from conformance.bench.validity import Check, worst_of
from conformance.compare import rms
from conformance.contract.bundle import Bundle
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.timed_steps import TimedStep, planned_step
from conformance.findings import Verdict
from conformance.statistics import equivalence
from conformance.tolerances import Tolerance, read_tolerances
from conformance.trajectories import bf16_limit, deviation, differences, envelope_limit, margin_of, runs, series

CLOCK = "clock"  # without it times have no meaning
CURVES = {"loss": "loss", "grad_norm": "gradient_norm"}  # the bundle's name -> the timed step's
DIGESTS = ("recipe_sha256", "plan_sha256", "rows_sha256", "checkpoint_sha256")
SHOWN = 3  # problems that a check names
Losses = dict[int, np.ndarray]  # seed of dropout -> losses [steps]


def timed_is_recipe(
    measurements: TrainingMeasurements, plan: Plan, reference: Bundle | TrainingMeasurements | None = None,
    limits: dict[str, Tolerance] | None = None,
) -> tuple[Check, ...]:  # fmt: skip
    """Every check over every whole launch. `reference`: its bundle; or, with dropout, its own timed launches, paired by seed."""
    steps_of = {launch: measurements.steps(launch.number) for launch in measurements.whole}
    return (
        _digests(measurements, plan, reference),
        _check(CLOCK, chain.from_iterable(_named(launch, time_problems(launch, steps)) for launch, steps in steps_of.items())),
        _check("steps", _step_problems(measurements, steps_of)),
        _check("rows and tokens", _each(steps_of, plan, _row_problems)),
        _check("learning rate", _each(steps_of, plan, _rate_problems)),
        _trajectory(plan.recipe, steps_of, reference, limits or read_tolerances()),
    )


def _check(name: str, problems: Iterator[str]) -> Check:
    """FAIL with the first problems, else PASS."""
    found = list(problems)
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    said = "; ".join(found[:SHOWN]) + more or "every step of every launch"
    return Check(name, Verdict.FAIL if found else Verdict.PASS, said)


def _digests(measurements: TrainingMeasurements, plan: Plan, reference: Bundle | TrainingMeasurements | None) -> Check:
    """What was timed is what was planned, and what the reference recorded."""
    known = {"recipe_sha256": plan.recipe.digest, "plan_sha256": plan.digest, "rows_sha256": plan.row_digest}
    manifest = measurements.manifest
    found = [f"{name} is not the recipe's" for name, value in known.items() if getattr(manifest, name) != value]
    if reference is not None:
        said = reference.manifest if isinstance(reference.manifest, dict) else {x: getattr(reference.manifest, x) for x in DIGESTS}
        found += [f"{name} is not the reference's" for name in DIGESTS if getattr(manifest, name) != said[name]]
    if manifest.flop and manifest.flop != step_flop(plan)[: manifest.steps]:
        found.append("flop is not the plan's")
    check = _check("digests", iter(found))
    return check if found else Check(check.name, check.verdict, "recipe, plan, rows" + (", checkpoint" if reference else ""))


def _named(launch: Launch, problems: Iterator[str]) -> Iterator[str]:
    return (f"launch {launch.number}: {problem}" for problem in problems)


def _step_problems(measurements: TrainingMeasurements, steps_of: dict[Launch, tuple[TimedStep, ...]]) -> Iterator[str]:
    if not steps_of:
        yield "no whole launch"
    for launch, steps in steps_of.items():
        if [one.step for one in steps] != list(range(measurements.manifest.steps)):
            yield f"launch {launch.number}: {len(steps)} steps, not 0 to {measurements.manifest.steps - 1} in order"


def _each(steps_of: dict[Launch, tuple[TimedStep, ...]], plan: Plan, problems: Callable) -> Iterator[str]:
    for launch, steps in steps_of.items():
        yield from _named(launch, problems(steps, plan))


def _row_problems(steps: tuple[TimedStep, ...], plan: Plan) -> Iterator[str]:
    """Rows in their order, their ids and targets, and how many tokens each update counts."""
    for one in steps:
        if one.step >= plan.total_steps:
            yield f"step {one.step}: the plan has {plan.total_steps} steps"
            continue
        for name, value in planned_step(plan, plan.steps[one.step]).items():
            if getattr(one, name) != value:
                yield f"step {one.step}: {name} {_short(getattr(one, name))}, planned {_short(value)}"


def _rate_problems(steps: tuple[TimedStep, ...], plan: Plan) -> Iterator[str]:
    """The contract's table, of which stacks take the float32 rounding."""
    table = plan.learning_rates.astype(np.float32)
    for one in steps:
        if one.step < len(table) and np.float32(one.learning_rate) != table[one.step]:
            yield f"step {one.step}: {one.learning_rate:.9g}, planned {table[one.step]:.9g}"


def _short(value: int | str) -> str:
    return value[:12] if isinstance(value, str) else str(value)


def _trajectory(
    recipe: Recipe, steps_of: dict[Launch, tuple[TimedStep, ...]], reference: Bundle | TrainingMeasurements | None,
    limits: dict[str, Tolerance],
) -> Check:  # fmt: skip
    """By the rung's own limits: the envelope (float32), the spread (bfloat16), or equivalence of runs paired by seed (dropout)."""
    name = "trajectory"
    if not steps_of or reference is None:
        return Check(name, Verdict.NOT_PROVEN, "no whole launch" if not steps_of else "no reference to hold the losses against")
    if recipe.adapter.dropout:
        return _equivalent(name, recipe, steps_of, reference, limits)
    if not isinstance(reference, Bundle):
        return Check(name, Verdict.NOT_PROVEN, "without dropout only the reference's bundle has limits: give it")
    missing = [run for run in _needed(recipe) if not runs(reference, run)]
    if missing:
        return Check(name, Verdict.NOT_PROVEN, f"the reference's bundle has no run {missing[0]}")
    judge = _in_envelope if recipe.precision.compute == "float32" else _in_spread
    outcomes = [judge(reference, launch, steps, curve, limits) for launch, steps in steps_of.items() for curve in CURVES]
    used, said = max(outcomes)
    return Check(name, Verdict.PASS if used <= 1 else Verdict.FAIL, f"{said}, {100 * used:.3g} % of the limit")


def _needed(recipe: Recipe) -> tuple[str, ...]:
    return ("f64", "f32", "perturbed-") if recipe.precision.compute == "float32" else ("f32", "bf16-")


def _curve(steps: tuple[TimedStep, ...], curve: str) -> np.ndarray:
    return np.asarray([getattr(one, CURVES[curve]) for one in steps], np.float64)


def _in_envelope(reference: Bundle, launch: Launch, steps: Sequence[TimedStep], curve: str, limits) -> tuple[float, str]:
    """(share of the limit where it is largest, where)"""
    truth, most = series(reference, "f64", curve), envelope_limit(reference, curve, limits)
    n = min(len(steps), len(truth))
    shares = deviation(_curve(steps, curve)[:n], truth[:n]) / most[:n]
    worst = int(np.argmax(shares))
    return float(shares[worst]), f"launch {launch.number}, {curve}, step {worst}"


def _in_spread(reference: Bundle, launch: Launch, steps: Sequence[TimedStep], curve: str, limits) -> tuple[float, str]:
    truth = series(reference, "f32", curve)[: len(steps)]
    error = rms(deviation(_curve(steps, curve)[: len(truth)], truth))
    return float(error / bf16_limit(reference, curve, limits, len(truth))), f"launch {launch.number}, {curve}, rms"


def _equivalent(name: str, recipe: Recipe, steps_of, reference: Bundle | TrainingMeasurements, limits) -> Check:
    """All summaries of whole runs must be equivalent within their margins; an interval over a margin decides nothing."""
    theirs, whole = _seeded(reference), max(map(len, steps_of.values()))
    pairs = [
        (theirs[launch.seed], _curve(steps, "loss"))
        for launch, steps in steps_of.items() if launch.seed in theirs and len(steps) == len(theirs[launch.seed])
    ]  # fmt: skip
    if len(pairs) < recipe.trajectory.dropout_pairs:
        said = f"{len(pairs)} pairs of whole runs of one seed ({whole} steps), {recipe.trajectory.dropout_pairs} are needed"
        return Check(name, Verdict.NOT_PROVEN, said)
    found = [_judged(summary, moved, margin_of(summary, limits)) for summary, moved in differences(pairs).items()]
    return Check(name, worst_of(found), f"{len(pairs)} pairs: " + "; ".join(one.said for one in found))


def _judged(summary: str, moved: np.ndarray, margin: float) -> Check:
    found = equivalence(moved)
    verdict = Verdict.PASS if found.bound <= margin else Verdict.FAIL if found.least > margin else Verdict.INCONCLUSIVE
    return Check(summary, verdict, f"{summary} {found.mean:+.2%} ± {found.half:.2%}, margin {margin:.2%}")


def _seeded(reference: Bundle | TrainingMeasurements) -> Losses:
    """The reference's losses with dropout by seed."""
    if isinstance(reference, Bundle):
        lines = [line for line in reference.lines("trajectory", "run") if line["run"].startswith("dropout-")]
        return {line["seed"]: series(reference, line["run"], "loss") for line in lines}
    return {launch.seed: _curve(reference.steps(launch.number), "loss") for launch in reference.whole}
