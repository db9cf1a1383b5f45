"""Rung trajectory: coupled training runs inside a measured envelope, and seed-paired runs with dropout by equivalence test."""

import numpy as np

from conformance.compare import rms, running_max
from conformance.contract.bundle import Bundle
from conformance.statistics import equivalence

SERIES = ("loss", "grad_norm")


def series(bundle: Bundle, run: str, name: str) -> np.ndarray:
    """float64 [steps]"""
    lines = [line for line in bundle.lines("trajectory", "step") if line["run"] == run]
    return np.asarray([line[name] for line in sorted(lines, key=lambda line: line["step"])], np.float64)


def runs(bundle: Bundle, prefix: str) -> list[str]:
    return sorted(line["run"] for line in bundle.lines("trajectory", "run") if line["run"].startswith(prefix))


def deviation(values: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Relative deviation, [steps]."""
    return np.abs(values / truth - 1)


def envelope(reference: Bundle, name: str) -> np.ndarray:
    """Running maximum over the perturbed reference runs of their deviation from the float64 run, [steps]."""
    truth = series(reference, "f64", name)
    errors = [deviation(series(reference, run, name), truth) for run in runs(reference, "perturbed-")]
    return running_max(np.max(errors, axis=0))


def envelope_limit(reference: Bundle, name: str, limits) -> np.ndarray:
    """Largest allowed deviation, [steps]: the envelope times its factor, never below the rounding of one float32 loss.

    At step 0, with B = 0, all perturbed runs are one run: their spread is a single rounding error.
    """
    return np.maximum(limits["envelope"].value * envelope(reference, name), limits["loss_rounding"].value)


def test_the_run_is_long_enough(judge, stacks, plan):
    """Both stacks ran every step of the plan."""
    for bundle in stacks:
        judge.same(f"{bundle.stack}, steps", len(series(bundle, "f32", "loss")), plan.total_steps)


def test_coupled_runs_stay_in_the_envelope(judge, reference, port, limits):
    """Step by step, loss and gradient norm stay within the spread of reference runs that differ by 2 ulp at the start."""
    judge.measure_in("relative deviation from the float64 run")
    for name in SERIES:
        limit = envelope_limit(reference, name, limits)
        truth, mine = series(reference, "f64", name), series(port, "f32", name)
        for step, (error, most) in enumerate(zip(deviation(mine, truth), limit, strict=True)):
            judge.within(f"{name}, step {step}", error, most, expected=truth[step], got=mine[step])


def test_the_reference_stays_in_its_own_envelope(judge, reference, limits):
    """The reference's unperturbed run lies in the envelope of its perturbed ones."""
    judge.measure_in("relative deviation from the float64 run")
    for name in SERIES:
        limit = envelope_limit(reference, name, limits)
        errors = deviation(series(reference, "f32", name), series(reference, "f64", name))
        for step, (error, most) in enumerate(zip(errors, limit, strict=True)):
            judge.within(f"{name}, step {step}", error, most)


def test_steps_count_the_same_tokens_at_the_same_rate(judge, reference, port):
    """Tokens, loss tokens and learning rate of every step are equal in both stacks."""
    for name in ("tokens", "loss_tokens", "learning_rate"):
        mine, theirs = (series(bundle, "f32", name).astype(np.float32) for bundle in (port, reference))
        judge.same(name, mine, theirs)


def test_training_learns(judge, stacks):
    """Control: the loss falls by at least 30 %, so that a run that learns nothing cannot pass."""
    for bundle in stacks:
        loss = series(bundle, "f32", "loss")
        tenth = max(1, len(loss) // 10)
        fall = 1 - loss[-tenth:].mean() / loss[:tenth].mean()
        judge.above(f"{bundle.stack}, fall of the loss", fall, 0.3)


def test_bfloat16_runs_stay_as_close_as_the_references(judge, reference, port, limits):
    """The bfloat16 run deviates from the float32 run, over all steps, as little as the reference's worst."""
    judge.measure_in("rms relative deviation from the float32 run")
    for name in SERIES:
        truth = series(reference, "f32", name)
        worst = max(rms(deviation(series(reference, run, name), truth)) for run in runs(reference, "bf16-"))
        mine = rms(deviation(series(port, runs(port, "bf16")[0], name), truth))
        limit = limits["bf16_trajectory"].value * worst
        judge.within(name, mine, limit, expected=f"at most {limit:.3g}", got=mine)


def summaries(loss: np.ndarray) -> dict[str, float]:
    """Final loss, mean of the last tenth, area under the curve per step."""
    tenth = max(1, len(loss) // 10)
    return {"final loss": loss[-1], "last tenth": loss[-tenth:].mean(), "area": loss.mean()}


def paired(reference: Bundle, port: Bundle) -> dict[str, np.ndarray]:
    """Summary -> relative differences port / reference - 1, one a seed."""
    pairs = [(run, run) for run in runs(reference, "dropout-") if run in runs(port, "dropout-")]
    both = [(summaries(series(port, a, "loss")), summaries(series(reference, b, "loss"))) for a, b in pairs]
    return {name: np.asarray([mine[name] / theirs[name] - 1 for mine, theirs in both]) for name in both[0][0]}


def test_runs_with_dropout_are_equivalent(judge, reference, port, recipe, limits):
    """Seed-paired runs with dropout end at the same loss within the margin, by two one-sided tests; all summaries must pass."""
    judge.measure_in("relative loss", "full")
    for name, differences in paired(reference, port).items():
        judge.above(f"{name}, pairs", len(differences), recipe.trajectory.dropout_pairs)
        result, margin = equivalence(differences), limits["tost_margin_" + name.replace(" ", "_")].value
        got = f"{result.mean:+.2%}, sd {result.sd:.2%}, n = {result.n}: shows margins from {result.bound:.2%} on"
        judge.within(name, result.bound, margin, expected=f"within ± {margin:.2%}", got=got)


def test_dropout_is_on_and_seeds_matter(judge, stacks):
    """Control: runs with dropout differ from the coupled run and from each other."""
    for bundle in stacks:
        losses = {run: series(bundle, run, "loss") for run in ["f32", *runs(bundle, "dropout-")]}
        distinct = {values.tobytes() for values in losses.values()}
        judge.same(f"{bundle.stack}, distinct runs", len(distinct), len(losses))
        judge.same(
            f"{bundle.stack}, dropout",
            {x["dropout"] > 0 for x in bundle.lines("trajectory", "run") if "dropout" in x["run"]},
            {True},
        )
