"""Ways to get a ratio past the gate wrongly: each is WITHHELD with the right reason, and the honest claim beside it is REPORTABLE."""

from dataclasses import replace

import pytest

from conformance.bench.training.records import FAILED, INTERRUPTED
from conformance.gate.changes import (
    FOREIGN,
    claims,
    launch,
    ledger,
    manifest,
    no_bundles,
    no_ledger,
    prices,
    scene,
    slower,
    step,
    steps_as,
    swap_sides,
    unpriced,
    withheld,
    written,
)
from conformance.gate.results import ClaimVerdict
from conformance.gate.synthetic import COST, LEDGER, MEAN, PEAK, STEP_MS, TIME, TTFT, edit_steps, tuned
from conformance.gate.tuning import Job, Ledger

HONEST = {"time": TIME, "dollars": COST, "TTFT": TTFT, "mean": MEAN, "peak": PEAK}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_claim_is_reportable(stage, name):
    """The control of all ways below."""
    stage.claim = HONEST[name]
    found = stage.judge()
    assert found.reasons == ()
    assert found.verdict is ClaimVerdict.REPORTABLE
    assert found.measured.bound > float(found.claim.stated)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_claim_on_the_claimed_devices_is_reportable(claimed_stage, name):
    """L1 and L2 of a GPU and a TPU."""
    claimed_stage.claim = HONEST[name]
    found = claimed_stage.judge()
    assert found.reasons == ()
    assert found.is_reportable


# Way -> what is changed, and words of the reason
SAME = "boot/1/1"
TRAINING = {
    "swapped sides": (swap_sides, "swapped sides: it was timed with the code of the other side"),
    "a port's measurement from a GPU": (manifest(platform="gpu"), "swapped sides, or another device: timed on platform 'gpu'"),
    "another device": (manifest(environment={"device": "TPU v4"}), "another device: timed on 'TPU v4', proved on 'cpu (x86_64)'"),
    "one side twice": (manifest(side="reference"), "are both of the reference"),
    "an unknown side": (manifest(side="both"), "side 'both' is not one of reference, port"),
    "inverted ratio": (claims(numerator="port", denominator="reference", stated="1.1"), "inverted ratio: training_time, port"),
    "a ratio in the reference's favour": (claims(winner="reference"), "inverted ratio"),
    "another recipe": (manifest(recipe_sha256=FOREIGN), "recipe ffffffffffff is not that of the bundles"),
    "another plan": (manifest(plan_sha256=FOREIGN), "digests: plan_sha256 is not the recipe's"),
    "other rows": (manifest(rows_sha256=FOREIGN), "digests: rows_sha256 is not the recipe's"),
    "mixed checkpoints": (manifest(checkpoint_sha256={"model.safetensors": FOREIGN}), "checkpoint_sha256 is not the reference's"),
    "other code of the stack": (manifest(stack_code_sha256=FOREIGN), "code differs: tpu_impl was timed with other code"),
    "other code of the suite": (manifest(code_sha256=FOREIGN), "the sides differ in the suite's code"),
    "one run copied five times": (scene(change_launch=lambda one: replace(one, process=SAME)), "one run copied: launch 2 is the"),
    "raw times copied": (scene(step_ms=(100.0,) * 5), "one run copied: launch 2 has the raw times of launch 1"),
    "launches at the same time": (scene(change_launch=lambda one: replace(one, ended_ns=10**14)), "launches 1 and 2 ran at the same"),
    "no process": (launch(3, process=""), "launch 3 does not say which process it was"),
    "cherry-picked: planned seven": (scene(planned=7), "7 launches planned, 5 found (cherry-picked?)"),
    "cherry-picked: a gap": (
        scene(change_launch=lambda one: replace(one, number=one.number + (one.number > 2))), "launch 3 is missing: numbers run to 6",
    ),
    "a failed launch": (launch(2, outcome=FAILED, reason="out of memory"), "launch 2 failed: out of memory"),
    "a slow launch interrupted": (launch(2, outcome=INTERRUPTED), "launch 2 was interrupted after its warm-up: its speed was seen"),
    "too few launches": (scene(step_ms=STEP_MS["port"][:4]), "4 whole launches; 5 are needed"),
    "fewer steps": (scene(steps=20), "20 of the recipe's 51 steps timed: fewer are enough only where a locked plan says so"),
    "one side fewer steps": (scene(steps=20), "the sides differ in number of steps: 51 against 20"),
    "more steps": (manifest(steps=60), "60 steps timed; the recipe has 51"),
    "a step left out": (manifest(steps=50), "steps: launch 1: 51 steps, not 0 to 49 in order"),
    "no warm-up": (scene(warm_up=0), "warm-up left in: warm_up = 0"),
    "warm-up left in": (scene(change_step=lambda _, one: slower(one, 3, 300)), "warm-up left in: step 3, the first that is timed"),
    "warm-up of the other side alone": (scene(warm_up=10), "the sides differ in warm-up: 3 against 10"),
    "the last steps alone": (scene(warm_up=40), "warm_up = 40 of 51 steps: which steps are timed is a choice"),
    "zero time": (step(7, end_ns=lambda one: one.start_ns), "launch 1: step 7 takes 0 ns"),
    "negative time": (step(7, end_ns=lambda one: one.start_ns - 5), "step 7 takes -5 ns"),
    "times that go back": (step(7, start_ns=lambda one: one.start_ns - 10**8), "step 7 begins -100000000 ns after the end of step 6"),
    "steps beyond their process": (scene(change_launch=lambda one: replace(one, ended_ns=one.spawned_ns + 1)), "outside the life of"),
    "time between steps left out": (step(7, start_ns=lambda one: one.start_ns + 10**6), "step 7 begins 1000000 ns after"),
    "fewer tokens": (step(7, tokens=lambda one: one.tokens - 1), "rows and tokens: launch 1: step 7: tokens"),
    "shorter rows": (step(7, tokens_sha256=FOREIGN), "rows and tokens: launch 1: step 7: tokens_sha256 ffffffffffff"),
    "another order": (step(7, rows_sha256=FOREIGN), "rows and tokens: launch 1: step 7: rows_sha256 ffffffffffff"),
    "another learning rate": (step(7, learning_rate=lambda one: one.learning_rate * 1.001), "learning rate: launch 1: step 7"),
    "losses that leave the trajectory": (step(7, loss=lambda one: one.loss * 1.001), "FAIL: trajectory: launch 5, loss, step 7"),
    "a gradient that leaves it": (step(7, gradient_norm=lambda one: one.gradient_norm * 1.01), "trajectory: launch 5, grad_norm"),
    "NaN": (steps_as(start_ns="NaN"), "start_ns = nan is float, not int"),
    "a loss that is no number": (steps_as(loss="NaN"), "loss = nan is not a finite number"),
    "an edited file": (written(lambda path: edit_steps(path, {"loss": "0.5"}, again=False)), "is not the file that was recorded"),
    "no ledger": (no_ledger, "untuned: no tuning ledger"),
    "one side tuned": (ledger(training=Job(None, LEDGER.training.port)), "training of the reference: the ledger has no [training]"),
    "one setting tried": (
        ledger(training=Job(replace(LEDGER.training.reference, tried=LEDGER.training.reference.tried[1:]), LEDGER.training.port)),
        "training of the reference: 1 settings tried; 2 different ones are needed",
    ),
    "a worse setting chosen": (
        ledger(training=Job(replace(LEDGER.training.reference, chosen="a"), LEDGER.training.port)), "chosen = 'a', but 'b' was better",
    ),
    "a budget for one side": (
        ledger(training=Job(replace(LEDGER.training.reference, budget_usd=1.0), LEDGER.training.port)), "one side untuned: training",
    ),
    "another setting timed": (
        ledger(training=Job(tuned(120.0, "step_ms"), LEDGER.training.port)), "untuned: the reference's measured step takes 200",
    ),
    "an empty ledger": (lambda stage: setattr(stage, "ledger", Ledger()), "training of the port: the ledger has no [training]"),
    "not reached": (claims(stated="2.01"), "not reached: the lower bound"),
    "at most, not reached": (claims(kind="at_most", stated="1.99"), "not reached: the upper bound"),
    "a rung that nobody built": (claims(rungs=("evaluation",)), "evaluation: the claim needs it, and it has not passed"),
    "no level": (claims(levels=()), "the claim names no level"),
    "level too low": (claims(levels=("L1", "L2")), "level too low: L2 is needed (the claimed recipe on the claimed devices)"),
    "no bundles": (no_bundles, "no bundles were given: findings are computed from them, and never read"),
}  # fmt: skip
DOLLARS = {
    "undated prices": (prices(date=""), "price of H100-2: date = '': undated"),
    "a price of tomorrow": (prices(date="2999-01-01"), "date = 2999-01-01: in the future"),
    "prices without source": (prices(source=" "), "price of H100-2: no source"),
    "free of charge": (prices(usd_per_hour=0.0), "usd_per_hour = 0; allowed: above 0"),
    "no price": (unpriced, "no price for machine 'H100-2'; known: v6e-8"),
}


@pytest.mark.parametrize("way", TRAINING)
def test_a_training_time_does_not_get_past(stage, way):
    withheld(stage, TIME, *TRAINING[way])


@pytest.mark.parametrize("way", DOLLARS)
def test_a_training_cost_does_not_get_past(stage, way):
    withheld(stage, COST, *DOLLARS[way])


def test_many_claims_are_held_stricter(stage):
    """A bound that is enough for one claim is not for forty of a file: one of so many would pass by chance."""
    stage.claim = TIME | {"stated": "1.97"}
    alone = stage.judge()
    assert alone.is_reportable
    stage.folder, stage.set_of = stage.folder / "again", 40
    stage.folder.mkdir()
    among = stage.judge()
    assert among.reasons[0].startswith("not reached: the lower bound")
    assert among.measured.bound < alone.measured.bound
    assert among.confidence == pytest.approx(1 - 0.05 / 40)
