"""Figures are what the raw times say, by formulae that a hand can follow."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.bench.speed_of_light import read_machine
from conformance.bench.synthetic_training import ORIGIN_NS, Scene, write_training
from conformance.bench.training.figures import figures_of, interval_of
from conformance.bench.training.flops import adapter_parameters, base_parameters, step_flop
from conformance.cli import main
from conformance.contract.errors import ContractError
from conformance.summary import CHECK_FAILED, NOT_DECIDED

STEPS, WARM_UP = 20, 3
SCENE = Scene(step_ms=(100.0, 110.0), first_ms=2000.0, setup_ms=5000.0, steps=STEPS, warm_up=WARM_UP)


def test_times_and_rates(tmp_path, plan):
    """By hand: steps of 100 ms, the first 2 s longer, 5 s after its launch; the rate is that of the steps after the warm-up."""
    measured = write_training(tmp_path / "m", plan, SCENE)
    first, second = figures_of(measured)
    assert (first.step_ms, second.step_ms) == (pytest.approx(100), pytest.approx(110))
    assert first.first_step_s == pytest.approx(5 + 2.1)
    assert first.train_s == pytest.approx(2.1 + 19 * 0.1)
    assert first.launch_s == pytest.approx(5 + 4.0 + 5)
    rows = [plan.by_row[row] for step in plan.steps[WARM_UP:STEPS] for row in step.rows]
    assert first.tokens_per_s == pytest.approx(sum(len(row.ids) for row in rows) / 1.7)
    assert first.targets_per_s == pytest.approx(sum(int(row.loss_mask.sum()) for row in rows) / 1.7)
    middle = interval_of((first, second), "step_ms")
    assert middle.value == pytest.approx((100 * 110) ** 0.5) and middle.low < 100 < 110 < middle.high


def test_a_warm_up_is_in_no_step_time(tmp_path, plan):
    """Control: without one, the first step's 2 s are in the mean."""
    means = [figures_of(write_training(tmp_path / str(n), plan, replace(SCENE, warm_up=n)))[0].mean_step_ms for n in (0, 1)]
    assert means == [pytest.approx(100 + 2000 / STEPS), pytest.approx(100)]


def test_time_to_target_loss(tmp_path, plan):
    """Until the mean of a tenth of the run, two steps, is at most the target; a loss that is never reached has none."""
    losses = tuple(float(loss) for loss in np.linspace(4, 2.1, STEPS))  # 4.0, 3.9, ...
    measured = write_training(tmp_path / "m", plan, replace(SCENE, losses=losses))
    (found, _), (never, _) = (figures_of(measured, target_loss=target) for target in (3.0, 1.0))
    assert found.to_target_s == pytest.approx(5 + 2 + 12 * 0.1)  # steps 10 and 11: 3.0 and 2.9
    assert never.to_target_s is None and interval_of((found, never), "to_target_s") is None


def test_a_figure_that_is_nothing_has_no_geometric_mean(tmp_path, plan):
    """A launch that found everything compiled; control: the others have one."""
    scene = replace(SCENE, change_launch=lambda launch: replace(launch, compile_s=launch.number - 1.0))
    figures = figures_of(write_training(tmp_path / "m", plan, scene))
    assert interval_of(figures, "compile_s") is None and interval_of(figures[1:], "compile_s").value == 1


def test_mfu_is_the_arithmetic_over_the_peak(tmp_path, plan):
    """On a CPU there is no peak and no MFU; twice the time halves it."""
    flop = step_flop(plan)[:STEPS]
    described = replace(SCENE, change_manifest=lambda manifest: replace(manifest, flop=flop))
    machine = read_machine("v5p-8")
    one, two = figures_of(write_training(tmp_path / "m", plan, replace(described, step_ms=(100.0, 200.0))), machine)
    assert one.mfu == pytest.approx(sum(flop[WARM_UP:]) / (1.7 * 4 * 459e12))
    assert two.mfu == pytest.approx(one.mfu / 2)
    assert figures_of(write_training(tmp_path / "cpu", plan, replace(described, platform="cpu")), machine)[0].mfu is None
    assert figures_of(write_training(tmp_path / "none", plan, described))[0].mfu is None


def test_flop_of_a_row_is_counted_by_hand(plan):
    """Query by query, key by key, and weight by weight; a trained base would cost half as much again."""
    step, topology = plan.steps[0], plan.topology
    by_hand = 0
    for row in (plan.by_row[number] for number in step.rows):
        n, targets = len(row.ids), int(row.loss_mask.sum())
        by_hand += 4 * base_parameters(topology) * n + 6 * adapter_parameters(plan) * n
        by_hand += 4 * topology.vocabulary * topology.hidden * targets
        for layer in topology.layers:
            window = n if layer.kind == "full_attention" else topology.window
            seen = sum(1 for query in range(n) for key in range(query + 1) if query - key < window)
            by_hand += 12 * layer.targets["self_attn.q_proj"].out_features * seen
    assert step_flop(plan)[0] == by_hand
    assert len(step_flop(plan)) == plan.total_steps
    assert step_flop(plan)[-1] < step_flop(plan)[0]  # two rows of four


def test_parameters_are_those_of_the_tensors(plan):
    """Every matrix but the embedding; rank times in plus out of each adapted weight."""
    topology = plan.topology
    everything = sum(int(np.prod(shape)) for shape in topology.tensors.values() if len(shape) == 2)
    assert base_parameters(topology) == everything - topology.vocabulary * topology.hidden
    shapes = [topology.tensors[f"{one.name}.weight"] for one in topology.adapted(plan.recipe.adapter.targets)]
    assert adapter_parameters(plan) == sum(plan.recipe.adapter.rank * (rows + columns) for rows, columns in shapes)


def _stood_still(number, one):
    """Step 5 takes no time, and step 6 follows on it."""
    return replace(one, end_ns=one.start_ns) if one.step == 5 else replace(one, start_ns=one.start_ns - 10**8) if one.step == 6 else one


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"change_step": lambda number, one: replace(one, end_ns=ORIGIN_NS) if one.step == 5 else one}, "step 6 begins"),
        ({"change_step": _stood_still}, "step 5 takes 0 ns"),
        ({"change_launch": lambda launch: replace(launch, spawned_ns=launch.ended_ns)}, "outside the life of its process"),
        ({"change_launch": lambda launch: replace(launch, ended_ns=launch.spawned_ns)}, "outside the life of its process"),
    ],
)
def test_times_that_no_clock_gives_are_refused(tmp_path, plan, change, words):
    with pytest.raises(ContractError, match=words):
        figures_of(write_training(tmp_path / "m", plan, replace(SCENE, **change)))


def test_a_measurement_without_a_clock_is_shown_without_figures(tmp_path, plan, capsys):
    """Its checks say what is wrong with it. Control: one whose times are a clock's has its step time."""
    for name, changes, code in (("true", {}, NOT_DECIDED), ("untrue", {"change_step": _stood_still}, CHECK_FAILED)):
        write_training(tmp_path / name, plan, replace(SCENE, **changes))
        assert main(["bench", "--show", str(tmp_path / name)]) == code
        text = capsys.readouterr().out
        assert ("95 % interval" in text) is (name == "true")
        assert ("step 5 takes 0 ns" in text) is (name == "untrue")


def test_a_run_of_warm_up_alone_has_no_figures(tmp_path, plan):
    """Control: one step more is one that is timed."""
    with pytest.raises(ContractError, match="3 steps, 3 of them warm-up"):
        figures_of(write_training(tmp_path / "m", plan, replace(SCENE, steps=WARM_UP)))
    assert figures_of(write_training(tmp_path / "more", plan, replace(SCENE, steps=WARM_UP + 1)))[0].step_ms == pytest.approx(100)
