"""Rung trajectory: coupled training runs inside a measured envelope, and seed-paired runs with dropout by equivalence test."""

import numpy as np

from conformance.compare import rms
from conformance.statistics import equivalence, fewest_fair_steps
from conformance.trajectories import (
    CURVES,
    RATE_RUN,
    bf16_limit,
    deviation,
    differences,
    dropout_pairs,
    envelope_limit,
    margin_of,
    rate_shifts,
    rate_slopes,
    rejected_rate_error,
    runs,
    series,
    steps_to,
    tenth,
)


def test_the_run_is_long_enough(judge, stacks, plan):
    """Both stacks ran every step of the plan."""
    for bundle in stacks:
        judge.same(f"{bundle.stack}, steps", len(series(bundle, "f32", "loss")), plan.total_steps)


def test_coupled_runs_stay_in_the_envelope(judge, reference, port, limits):
    """Step by step, loss and gradient norm stay within the spread of reference runs that start 2 ulp apart or sum in another order."""
    judge.measure_in("relative deviation from the float64 run")
    for name in CURVES:
        limit = envelope_limit(reference, name, limits)
        truth, mine = series(reference, "f64", name), series(port, "f32", name)
        for step, (error, most) in enumerate(zip(deviation(mine, truth), limit, strict=True)):
            judge.within(f"{name}, step {step}", error, most, expected=truth[step], got=mine[step])


def test_the_reference_stays_in_its_own_envelope(judge, reference, limits):
    """The reference's unperturbed run lies in the envelope of its perturbed ones."""
    judge.measure_in("relative deviation from the float64 run")
    for name in CURVES:
        limit = envelope_limit(reference, name, limits, plain=False)
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
    for name in CURVES:
        mine = rms(deviation(series(port, runs(port, "bf16")[0], name), series(reference, "f32", name)))
        limit = bf16_limit(reference, name, limits)
        judge.within(name, mine, limit, expected=f"at most {limit:.3g}", got=mine)


def test_runs_with_dropout_are_equivalent(judge, reference, port, recipe, limits):
    """Seed-paired runs with dropout end at the same loss within the margin, by two one-sided tests; all summaries must pass.

    An interval that lies outside the margin is a difference; one that reaches over it decides nothing.
    """
    judge.measure_in("relative loss", "full")
    pairs, slopes = dropout_pairs(reference, port), rate_slopes(reference)
    judge.at_least("pairs", len(pairs), recipe.trajectory.dropout_pairs)
    for name, moved in differences(pairs).items():
        result, margin = equivalence(moved), margin_of(name, limits)
        error = rejected_rate_error(result, margin, slopes[name])
        got = f"{result.mean:+.2%}, sd {result.sd:.2%}, n = {result.n}: rejects a learning rate that is off by {error:.0%} or more"
        decided = result.bound <= margin or result.least > margin
        judge.within(name, result.bound if decided else result.least, margin, expected=f"within ± {margin:.2%}", got=got)
        if not decided:
            interval = f"{result.mean:+.2%} ± {result.half:.2%}"
            judge.inconclusive = f"{name}: {interval} reaches over the margin of {margin:.2%}; more pairs would decide"


def test_the_statistics_see_another_learning_rate(judge, reference, limits):
    """Control: the reference's run at another learning rate is over the margin in at least one summary."""
    judge.measure_in("share of the margin")
    factor, shifts = rate_shifts(reference)
    shares = {name: abs(shift) / margin_of(name, limits) for name, shift in shifts.items()}
    name = max(shares, key=shares.get)
    judge.above(f"{RATE_RUN}{factor}, {name}", shares[name], 1, got=f"{shifts[name]:+.2%}")


def test_the_port_does_not_converge_faster(judge, reference, port):
    """The port's runs with dropout need no fewer steps to the reference's last loss than its own runs' spread explains (MLPerf)."""
    judge.measure_in("steps below the fewest fair mean")
    pairs = dropout_pairs(reference, port)
    target = max(loss[-2 * tenth(len(loss)) :].mean() for loss, _ in pairs)
    theirs, mine = (np.asarray([steps_to(pair[side], target) for pair in pairs], np.float64) for side in (0, 1))
    fair = fewest_fair_steps(theirs, len(mine))
    judge.within(
        f"steps to loss {target:.3f}", max(0.0, fair - mine.mean()), 0,
        expected=f"at least {fair:.1f} (reference {theirs.mean():.1f}, sd {theirs.std(ddof=1):.1f})", got=f"{mine.mean():.1f}",
    )  # fmt: skip


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
