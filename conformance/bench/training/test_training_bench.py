"""The training benchmark: pytest -m tpu_bench --recipe R.toml --machine v5p-8 --out DIR [--launches 5] [--steps N]; gpu_bench likewise.

Without the hardware it is skipped with the reason: NOT PROVEN. `cpu_bench` times the port and the stock port on this CPU.
"""

import shlex
import sys

import pytest

from conformance.bench.devices import missing_device
from conformance.bench.training.figures import figures_of, interval_of
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import OK
from conformance.cli import main
from conformance.contract.recipe_writer import write_recipe
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED
from conformance.trajectories import series

CPU_LAUNCHES, CPU_STEPS = 3, 8
STOCK = shlex.join([sys.executable, "-m", "fixtures.stock_port", "bench"])


def measure(request, side: str, name: str, *more: str, launches: int | None = None, steps: int | None = None):
    """(exit code of `parity bench`, what it measured), with the options of the session where none are given."""
    option, fixture = request.config.getoption, request.getfixturevalue
    out = (option("--out") or fixture("tmp_path_factory").mktemp("bench")) / name
    recipe, steps = write_recipe(fixture("tmp_path") / f"{name}.toml", fixture("recipe")), steps or option("--steps")
    call = ["bench", f"--side={side}", f"--recipe={recipe}", f"--out={out}", f"--machine={option('--machine')}"]
    call += [f"--launches={launches or option('--launches')}", *([f"--steps={steps}"] if steps else [])]
    call += [f"--reference-bundle={option('--reference-bundle')}"] if option("--reference-bundle") else []
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():  # hours: the cost is shown first
        return main([*call, *more]), TrainingMeasurements(out)


def timed_on(request, platform: str, side: str) -> TrainingMeasurements:
    if reason := missing_device(platform):
        pytest.skip(reason)
    code, measured = measure(request, side, f"training-{platform}")
    assert code in (ALL_PASS, NOT_DECIDED)  # not decided: no reference bundle was given
    assert measured.manifest.platform == platform
    return measured


@pytest.mark.tpu_bench
@pytest.mark.timeout(0)  # hours
def test_the_port_is_timed_on_the_tpu(request):
    """Every launch is whole, and took the rows, tokens and learning rates of the plan."""
    assert timed_on(request, "tpu", "port").left == 0


@pytest.mark.gpu_bench
@pytest.mark.timeout(0)
def test_the_reference_is_timed_on_the_gpus(request):
    """Every launch is whole, and took the rows, tokens and learning rates of the plan."""
    assert timed_on(request, "gpu", "reference").left == 0


@pytest.mark.cpu_bench
@pytest.mark.timeout(0)
def test_port_and_stock_port_are_timed_on_this_cpu(request):
    """The claim that needs no accelerator, with the stock port as its reference: real launches for what follows a measurement."""
    asked = {"launches": CPU_LAUNCHES, "steps": CPU_STEPS}
    code, port = measure(request, "port", "cpu-port", **asked)
    assert code in (ALL_PASS, NOT_DECIDED)
    code, stock = measure(request, "reference", "cpu-stock", f"--command={STOCK}", **asked)
    assert code in (ALL_PASS, NOT_DECIDED, CHECK_FAILED)  # its losses are not the recipe's: docs/stock-port.md
    for measured in (port, stock):
        assert [launch.outcome for launch in measured.launches] == [OK] * CPU_LAUNCHES
        assert interval_of(figures_of(measured), "step_ms").low > 0


@pytest.fixture(scope="module")
def launched(recipe, tmp_path_factory) -> tuple[int, TrainingMeasurements]:
    """(exit code, measurement) of one launch of three steps of the port."""
    folder = tmp_path_factory.mktemp("launched")
    file = write_recipe(folder / "recipe.toml", recipe)
    call = ["bench", "--side=port", f"--recipe={file}", f"--out={folder / 'bench'}", "--launches=1", "--steps=3", "--warm-up=1"]
    return main(call), TrainingMeasurements(folder / "bench")


def test_a_launch_of_the_port_takes_the_plans_steps(launched):
    """From the command line to figures; without a reference the losses are not proven."""
    code, measured = launched
    assert code == NOT_DECIDED
    (figures,) = figures_of(measured)
    assert 0 < figures.compile_s < figures.first_step_s < figures.launch_s
    assert figures.mfu is None and figures.memory_of == "RSS"


def test_the_timed_losses_are_those_of_the_trajectory(launched, pair):
    """The run that was timed is the one that the ladder judges; rematerialisation, which it has, may round otherwise."""
    _, measured = launched
    timed, recorded = [one.loss for one in measured.steps(1)], series(pair.port, "f32", "loss")
    assert timed == pytest.approx(recorded[: len(timed)], rel=1e-6)
    assert timed != pytest.approx(recorded[1 : 1 + len(timed)], rel=1e-2)  # control: another step's losses


def test_without_hardware_it_says_so(tmp_path):
    """Control: with a device nothing is missing."""
    assert missing_device("tpu", tmp_path).startswith("NOT PROVEN: no TPU here")
    (tmp_path / "accel0").touch()
    assert missing_device("tpu", tmp_path) == ""
    assert missing_device("gpu", tmp_path).startswith("NOT PROVEN: no GPU here")
