"""Ways to get a ratio past the gate wrongly: each is WITHHELD with the right reason, and the honest claim beside it is REPORTABLE."""

from copy import copy
from dataclasses import replace

import pytest

from conformance.bench.prices import Price
from conformance.bench.synthetic_sweep import CELLS, SETTINGS
from conformance.bench.training.records import FAILED, INTERRUPTED
from conformance.findings import Verdict
from conformance.gate.costs import Prices
from conformance.gate.results import ClaimVerdict
from conformance.gate.synthetic import COST, LEDGER, MEAN, PEAK, PRICES, STEP_MS, TIME, TTFT, Stage, edit_json, edit_steps, tuned
from conformance.gate.tuning import Job, Ledger

HONEST = {"time": TIME, "dollars": COST, "TTFT": TTFT, "mean": MEAN, "peak": PEAK}
FOREIGN = "f" * 64


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


# Training: stage -> None, and words of the reason
def swap_sides(stage: Stage) -> None:
    """What the reference took is given as the port's, and the other way round."""
    codes = {name: getattr(stage.proof.pair, name).manifest["code_sha256"] for name in ("reference", "port")}
    stage.manifests = {
        "reference": lambda one: replace(one, stack="tpu_impl", stack_code_sha256=codes["port"]),
        "port": lambda one: replace(one, stack="reference", stack_code_sha256=codes["reference"]),
    }
    stage.training = {"reference": {"step_ms": STEP_MS["port"]}, "port": {"step_ms": STEP_MS["reference"]}}


def manifest(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.manifests = {stack: lambda one: replace(one, **changes)}

    return change


def scene(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.training[stack] = changes

    return change


def launch(number: int, **changes):
    return scene(change_launch=lambda one: replace(one, **changes) if one.number == number else one)


def step(number: int, **changes):
    """Of every launch; a value may be a function of the record."""

    def changed(_, one):
        values = {name: value(one) if callable(value) else value for name, value in changes.items()}
        return replace(one, **values) if one.step == number else one

    return scene(change_step=changed)


def written(change, job: str = "training", stack: str = "port"):
    def after(stage: Stage) -> None:
        stage.after = {f"{job}-{stack}": change}

    return after


def steps_as(**words: str):
    """Words of launch 1's steps replaced by others, digested again."""
    return written(lambda path: edit_steps(path, words))


def claims(**changes):
    def change(stage: Stage) -> None:
        stage.claim = stage.claim | changes

    return change


def ledger(**changes):
    def change(stage: Stage) -> None:
        stage.ledger = replace(LEDGER, **changes)

    return change


def prices(**changes):
    def change(stage: Stage) -> None:
        stage.prices = Prices(PRICES | {name: replace(price, **changes) for name, price in PRICES.items()})

    return change


def no_ledger(stage: Stage) -> None:
    stage.ledger = None


def unpriced(stage: Stage) -> None:
    stage.prices = Prices({"v6e-8": Price(1.0, "a list", "2026-11-30")})


def no_bundles(stage: Stage) -> None:
    """Findings and a certificate may say what they like."""
    stage.judged_with = []


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


def slower(one, first: int, longer_ms: int):
    """`first` takes so much longer; everything after it is later."""
    late = longer_ms * 10**6
    return replace(one, start_ns=one.start_ns + late * (one.step > first), end_ns=one.end_ns + late * (one.step >= first))


def withheld(stage: Stage, honest: dict, way, words: str) -> None:
    stage.claim = honest
    way(stage)
    found = stage.judge()
    assert found.verdict is ClaimVerdict.WITHHELD
    assert any(words in reason for reason in found.reasons), found.reasons
    assert found.measured is None or words.startswith("not reached")


@pytest.mark.parametrize("way", TRAINING)
def test_a_training_time_does_not_get_past(stage, way):
    withheld(stage, TIME, *TRAINING[way])


@pytest.mark.parametrize("way", DOLLARS)
def test_a_training_cost_does_not_get_past(stage, way):
    withheld(stage, COST, *DOLLARS[way])


# Serving
def sweep(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.serving[stack] = changes

    return change


def served(of: str, stack: str = "port"):
    """The weights that a sweep's server had."""

    def change(stage: Stage) -> None:
        manifest = stage.proof.pair.reference.manifest
        weights = {"base": manifest["checkpoint_sha256"], "strange": {"model.safetensors": FOREIGN}, "none": {}}[of]
        stage.serving[stack] = {"weights_sha256": weights}

    return change


def one_start_thrice(run):
    return replace(run, records=tuple(replace(one, chunk_ns=(one.sent_ns + 10**7,) * len(one.chunk_ns)) for one in run.records))


def unserved(stage: Stage) -> None:
    """The rung serving was not recorded, which no level of a tiny model asks for."""
    level, without = stage.proof.level, {"verdict": Verdict.NOT_PROVEN, "reason": "no vLLM"}
    findings = tuple(replace(one, **without) if one.rung == "serving" else one for one in level.findings)
    stage.judged_with = [replace(stage.proof, level=replace(level, findings=findings))]


SERVING = {
    "a server that was not held to the model": (unserved, "serving: the claim needs it, and it has not passed: "),
    "the base model served": (served("base"), "it served the base checkpoint, not a merged one"),
    "mixed checkpoints": (served("strange"), "mixed checkpoints: it served weights that neither bundle merged"),
    "weights not said": (served("none"), "which weights were served is not recorded"),
    "swapped platform": (sweep(platform="tpu"), "swapped sides: sweep"),
    "too few starts": (sweep(ttft_ms=(25.0, 25.5)), "port: server starts: 2; 3 are needed"),
    "one start copied": (sweep(ttft_ms=(25.0,) * 3), "one run copied: open-10-in32-out8-fixed of start 2 has the raw times of start 1"),
    "saturated latency": (
        lambda stage: (claims(cell="32 at 20/s")(stage), sweep(busy_ms=75.0)(stage)), "port is saturated: its latency is that of",
    ),
    "another KV cache": (sweep(settings=SETTINGS | {"kv_dtype": "fp8"}), "the servers are set differently: kv_dtype: auto against fp8"),
    "other requests": (sweep(seed=2), "other requests were sent to A than to B"),
    "no such cell": (claims(cell="4096 at 4/s"), "cell '4096 at 4/s': not in both sweeps"),
    "a length without a rate": (claims(cell="32"), "cell '32': 2 cells are meant; name the rate"),
    "a p99 of few requests": (claims(percentile="p99"), "TTFT p99 was measured on neither side"),
    "a client that lagged": (
        sweep(change_run=lambda run: replace(run, loop_lags_ns=(9_000_000,) * 100)), "port: start 1: FAIL: client kept up",
    ),
    "failed replies": (
        sweep(change_run=lambda run: replace(run, records=(replace(run.records[0], done_events=0), *run.records[1:]))),
        "port: start 1: FAIL: whole replies",
    ),
    "times out of order": (
        sweep(change_run=lambda run: replace(run, records=(replace(run.records[0], end_ns=5), *run.records[1:]))),
        "request 0: its times are not in order",
    ),
    "a machine without a bound": (sweep(machine=""), "port: start 1: NOT PROVEN: speed of light"),
    "a server not tuned": (ledger(serving=Job(None, LEDGER.serving.port)), "serving of the reference: the ledger has no [serving]"),
    "a start dropped": (
        written(lambda path: edit_json(path / "manifest.json", replicates=4), "serving"), "port: 4 starts planned, 3 measured: start 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", SERVING)
def test_a_latency_does_not_get_past(stage, way):
    withheld(stage, TTFT, *SERVING[way])


def test_unequal_output_lengths_do_not_get_past(stage):
    """Natural replies of 7 and 6 tokens against 7 and 8. Control: the same lengths are reportable."""
    cells = CELLS.replace('length = "LENGTH"', 'length = "natural"')
    name = {"cell": "open-10-in32-out8-natural"}
    for stack in stage.serving:
        stage.serving[stack] = {"cells": cells, "output_tokens": (7, 8)}
    stage.claim = TTFT | name
    assert stage.judge().is_reportable
    stage.folder = stage.folder / "again"
    stage.folder.mkdir()
    stage.serving["port"] = {"cells": cells, "output_tokens": (7, 6)}
    withheld(stage, TTFT | name, lambda stage: None, "output length, mean: 6.5 tokens against 7.5")


def test_a_peak_with_one_invalid_level_does_not_get_past(stage):
    """The level that fails might have been a side's best."""
    stage.serving["reference"] = {"change_run": lambda run: replace(run, loop_lags_ns=(9_000_000,) * 100)}
    withheld(stage, PEAK, lambda stage: None, "closed-2-in32-out8-fixed: reference: start 1: FAIL: client kept up")


# The claimed devices
def another(key: str):
    """What the pair of L1 says of the port; that of L2 is as it was."""

    def change(stage: Stage) -> None:
        proof = stage.proofs[0]
        port = copy(proof.pair.port)
        port.manifest = port.manifest | {key: "TPU v4"}
        stage.proofs[0] = replace(proof, pair=replace(proof.pair, port=port))

    return change


CLAIMED = {
    "arithmetic on a CPU for a TPU's time": (claims(levels=("L0",)), "level too low: measured on gpu and tpu, so L1 and L2 are needed"),
    "no MFU": (manifest(flop=()), "untuned: no MFU: the measurement does not say what its steps"),
    "another model's FLOP": (manifest(flop=(1e18,) * 51), "digests: flop is not the plan's"),
    "more than the peak": (scene(step_ms=(0.0001, 0.0002, 0.0003, 0.0004, 0.0005), first_ms=0.0), "IMPOSSIBLE: MFU"),
    "other chips": (manifest(chips=8), "untuned: no MFU: 8 chips were used; v5p-8 has 4"),
    "an unknown machine": (manifest(machine="v9"), "machine 'v9' is not one of"),
    "another port at L1": (another("code_sha256"), "the port's pairs were recorded with different code: "),
    "another chip at L1": (another("device"), "the port's pairs were recorded with different device: "),
    "the claimed recipe at L1 alone": (lambda stage: stage.proofs.pop(), "level too low: L2 is needed"),
}


@pytest.mark.parametrize("way", CLAIMED)
def test_nothing_gets_past_on_the_claimed_devices(claimed_stage, way):
    withheld(claimed_stage, TIME | {"levels": ("L1", "L2")}, *CLAIMED[way])


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
