"""A timed run is held to the plan and to the reference's curves; each check fails for what it is there for, and for nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.bench.synthetic_training import Scene, write_training
from conformance.bench.training.checks import timed_is_recipe
from conformance.bench.training.flops import step_flop
from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.plan import make_plan
from conformance.contract.run_record import StepLine, write_steps
from conformance.findings import Verdict

STEPS = 10


@pytest.fixture(scope="module")
def losses(plan) -> np.ndarray:
    return 4.0 * np.exp(-np.arange(plan.total_steps) / plan.total_steps)


def reference_bundle(path, plan, losses: np.ndarray) -> Bundle:
    """A reference whose float32 runs scatter by 1e-6, its bfloat16 runs by 1e-3 and its runs with dropout by 1e-2."""
    spread = {"f64": 0.0, "f32": 1e-6, "perturbed-0": 1e-6, "bf16-0": 1e-3} | {f"dropout-{seed}": 1e-2 for seed in range(5)}
    with BundleWriter(path, stack="reference", recipe=plan.recipe, plan=plan) as writer:
        for run, size in spread.items():
            seed = int(run[-1]) if run.startswith("dropout") else 0
            values = losses * (1 + size * np.cos(np.arange(len(losses)) + seed))
            writer.line("trajectory", "run", run=run, precision=run[:3], seed=seed, dropout=0.1 if "dropout" in run else 0.0)
            write_steps(writer, run, [StepLine(i, float(v), float(v), 1e-3, 4, 400, 200) for i, v in enumerate(values)])
        writer.manifest(device="cpu")
    return Bundle(path)


@pytest.fixture(scope="module")
def reference(tmp_path_factory, plan, losses) -> Bundle:
    return reference_bundle(tmp_path_factory.mktemp("reference") / "bundle", plan, losses)


@pytest.fixture
def verdicts(tmp_path, plan, reference, losses):
    """Check -> verdict of a bundle that the scene's changes spoil."""

    def judge(against=reference, of=plan, **changes) -> dict[str, Verdict]:
        scene = Scene(
            step_ms=(100.0, 101.0), steps=STEPS, losses=tuple(losses), gradient_norms=tuple(losses),
            checkpoint_sha256=reference.manifest["checkpoint_sha256"],
        )  # fmt: skip
        measured = write_training(tmp_path / str(len(list(tmp_path.iterdir()))), of, replace(scene, **changes))
        return {check.name: check.verdict for check in timed_is_recipe(measured, of, against)}

    return judge


def failing(found: dict[str, Verdict]) -> list[str]:
    return [name for name, verdict in found.items() if verdict is not Verdict.PASS]


def at(place: int, **values):
    """Of launch 2 alone, so that a check which reads the first launch only sees nothing."""
    return lambda number, one: replace(one, **values) if (number, one.step) == (2, place) else one


def test_an_honest_run_passes_every_check(verdicts, plan):
    """The control of all others; without a reference its losses are not proven."""
    assert failing(verdicts()) == []
    assert failing(verdicts(change_manifest=lambda manifest: replace(manifest, flop=step_flop(plan)[:STEPS]))) == []
    assert verdicts(against=None)["trajectory"] is Verdict.NOT_PROVEN


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("rows and tokens", at(3, rows_sha256="0" * 64)),
        ("rows and tokens", at(3, tokens_sha256="0" * 64)),
        ("rows and tokens", at(3, tokens=1)),
        ("rows and tokens", at(3, input_tokens=1)),
        ("learning rate", at(3, learning_rate=1e-3)),
        ("trajectory", at(3, loss=3.0)),
        ("trajectory", at(3, gradient_norm=3.0)),
    ],
)
def test_one_step_of_one_launch_is_seen(verdicts, check, change):
    assert failing(verdicts(change_step=change)) == [check]


def test_a_step_too_few_or_out_of_order_is_seen(verdicts):
    """Control: as many as the manifest says pass."""
    assert failing(verdicts(change_manifest=lambda manifest: replace(manifest, steps=STEPS + 1))) == ["steps"]
    assert "steps" in failing(verdicts(change_step=at(3, step=4)))


def test_times_that_no_clock_gives_are_seen(verdicts):
    assert failing(verdicts(change_step=at(3, end_ns=1))) == ["clock"]


@pytest.mark.parametrize("name", ["recipe_sha256", "plan_sha256", "rows_sha256", "checkpoint_sha256", "flop"])
def test_another_digest_is_seen(verdicts, name):
    other = {"checkpoint_sha256": {"model.safetensors": "1"}, "flop": (1.0,) * STEPS}.get(name, "0" * 64)
    assert failing(verdicts(change_manifest=lambda manifest: replace(manifest, **{name: other}))) == ["digests"]


def test_without_a_whole_launch_nothing_is_shown(verdicts):
    found = verdicts(change_launch=lambda launch: replace(launch, outcome="failed"))
    assert (found["steps"], found["trajectory"]) == (Verdict.FAIL, Verdict.NOT_PROVEN)


def test_losses_are_held_to_the_envelope_of_float32(verdicts, losses):
    """5 times the spread of 1e-6 over the steps so far: four of them pass, six do not."""
    near, far = (tuple(losses * (1 + share * 1e-6)) for share in (4, 6))
    assert failing(verdicts(losses=near)) == []
    assert failing(verdicts(losses=far)) == ["trajectory"]


def of_recipe(plan, **changes):
    return make_plan(replace(plan.recipe, **{name: replace(getattr(plan.recipe, name), **values) for name, values in changes.items()}))


def test_a_bfloat16_recipe_is_held_to_the_spread_of_bfloat16(verdicts, plan, losses, tmp_path):
    """1e-3 off passes, 1e-2 does not."""
    half = of_recipe(plan, precision={"compute": "bfloat16"})
    bundle = reference_bundle(tmp_path / "half", half, losses)
    assert failing(verdicts(bundle, half, losses=tuple(losses * (1 + 1e-3)))) == []
    assert failing(verdicts(bundle, half, losses=tuple(losses * (1 + 1e-2)))) == ["trajectory"]


@pytest.mark.parametrize("by_launches", [False, True])
def test_a_recipe_with_dropout_is_held_to_equivalence(verdicts, plan, losses, tmp_path, by_launches):
    """Five whole runs paired by seed, with the bundle or the reference's own launches; 20 % more is a difference, two are too few."""
    dropped = of_recipe(plan, adapter={"dropout": 0.1})
    whole = {"steps": None, "step_ms": (100.0,) * 5, "change_launch": lambda one: replace(one, seed=one.number - 1)}
    bundle = reference_bundle(tmp_path / "dropped", dropped, losses)
    if by_launches:
        scene = Scene("reference", losses=tuple(losses), checkpoint_sha256=bundle.manifest["checkpoint_sha256"], **whole)
        bundle = write_training(tmp_path / "launches", dropped, scene)
    assert failing(verdicts(bundle, dropped, **whole)) == []
    assert verdicts(bundle, dropped, **whole, losses=tuple(1.2 * losses))["trajectory"] is Verdict.FAIL
    assert verdicts(bundle, dropped, **whole | {"step_ms": (100.0,) * 2})["trajectory"] is Verdict.NOT_PROVEN
    assert verdicts(bundle, dropped, **whole | {"steps": STEPS})["trajectory"] is Verdict.NOT_PROVEN
