"""Launches: whole ones are kept whatever happens, failed and interrupted ones stay visible, and only the same measurement goes on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from conformance.bench.bundle_files import MANIFEST
from conformance.bench.synthetic_training import Scene, write_training
from conformance.bench.training import fake_stack
from conformance.bench.training.folder import process_identity
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import FAILED, INTERRUPTED, OK
from conformance.cli import main
from conformance.contract.digest import canonical_json
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.timed_steps import STEPS
from conformance.summary import BAD_INPUT, CHECK_FAILED, NOT_DECIDED, STOPPED

STEPS_OF_A_LAUNCH = 4
WAIT_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory, plan) -> tuple[Path, Path]:
    """(recipe file, lines that a fake stack writes)"""
    folder = tmp_path_factory.mktemp("fake")
    planned = write_training(folder / "planned", plan, Scene(step_ms=(100.0,), steps=STEPS_OF_A_LAUNCH)).path / "launch-1" / STEPS
    return write_recipe(folder / "recipe.toml", plan.recipe), planned


@pytest.fixture
def arguments(files, tmp_path):
    """The command line of a measurement whose stack does what the words say."""
    recipe, planned = files

    def make(*words: str, launches: int = 2, **more: object) -> list[str]:
        command = shlex.join([sys.executable, fake_stack.__file__, str(planned), *words])
        given = {"recipe": recipe, "out": tmp_path / "bench", "steps": STEPS_OF_A_LAUNCH, "warm-up": 1, "launches": launches} | more
        return ["bench", "--side", "port", "--command", command, *(f"--{name}={value}" for name, value in given.items())]

    return make


def outcomes(folder: Path) -> list[str]:
    return [launch.outcome for launch in TrainingMeasurements(folder / "bench").launches]


def test_launches_are_separate_processes_of_the_recipe(arguments, tmp_path, capsys):
    """What it will take and cost is said first; nothing half done is left; without a reference the losses are not proven."""
    assert main(arguments()) == NOT_DECIDED
    said = capsys.readouterr()
    first, cost = (said.err.index(words) for words in ("2 of 2 launches are left", "no price: this machine is not in prices.toml"))
    assert first < said.err.index("4 steps with 1638 tokens") < cost < said.err.index("launch 1: 2 left of 2")
    assert "PASS: rows and tokens" in said.out and "NOT PROVEN: trajectory" in said.out
    measured = TrainingMeasurements(tmp_path / "bench")
    assert len({launch.process for launch in measured.launches}) == 2
    assert [launch.seed for launch in measured.launches] == [measured.recipe.seeds.dropout, measured.recipe.seeds.dropout + 1]
    assert (measured.manifest.platform, measured.manifest.versions) == ("cpu", {"fake": "1"})
    assert not list(measured.path.glob(".*"))


def test_the_same_command_goes_on(arguments, tmp_path):
    """With more launches asked for, only the new ones run; with as many, none does."""
    main(arguments(launches=1))
    before = TrainingMeasurements(tmp_path / "bench").launches
    main(arguments(launches=3))
    after = TrainingMeasurements(tmp_path / "bench").launches
    assert (after[:1], len(after)) == (before, 3)
    main(arguments(launches=3))
    assert TrainingMeasurements(tmp_path / "bench").launches == after


def test_another_measurement_does_not_go_on(arguments, tmp_path, capsys):
    """Other steps, another side, another command, a folder of something else."""
    main(arguments(launches=1))
    for other in (arguments(launches=1, steps=3), arguments("--short", launches=1), [*arguments(launches=1), "--side=reference"]):
        assert main(other) == BAD_INPUT
        assert "a measurement with another" in capsys.readouterr().err
    assert main(arguments(out=tmp_path)) == BAD_INPUT
    assert "neither empty nor a training measurement" in capsys.readouterr().err


def test_a_failed_launch_is_counted_and_never_averaged(arguments, tmp_path, capsys):
    """The others go on; its steps and its last words stay."""
    assert main(arguments("--fail", "2", "--at-launch", "2", launches=3)) == CHECK_FAILED
    assert outcomes(tmp_path) == [OK, FAILED, OK]
    measured = TrainingMeasurements(tmp_path / "bench")
    assert len(measured.steps(2)) == 2 and measured.left == 0
    assert "out of memory" in measured.launches[1].reason
    assert "geometric mean of 2 launches" in capsys.readouterr().out


def test_where_the_first_launch_fails_no_further_is_paid_for(arguments, tmp_path, capsys):
    """Control: the one before, in which a launch was whole."""
    assert main(arguments("--fail", "0", launches=5)) == BAD_INPUT
    assert outcomes(tmp_path) == [FAILED]
    assert "launch 1 failed, none was whole before" in capsys.readouterr().err


def test_a_command_that_cannot_be_started_is_a_failed_launch(arguments, tmp_path, capsys):
    """It says so, and with which words."""
    words = arguments(launches=1)
    words[words.index("--command") + 1] = "no-such-program"
    assert main(words) == BAD_INPUT
    assert "cannot be started" in capsys.readouterr().err
    assert outcomes(tmp_path) == [FAILED]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--short",), "it wrote 3 steps of 4"),
        (("--garbage",), "step = 'one' is str, not int"),
        (("--device", "other"), "environment is"),
    ],
)
def test_a_launch_that_is_not_like_the_first_has_failed(arguments, tmp_path, words, reason):
    """Steps missing, a line that is no step, another device: each by its reason."""
    main(arguments(*words, "--at-launch", "2"))
    assert outcomes(tmp_path) == [OK, FAILED]
    assert reason in TrainingMeasurements(tmp_path / "bench").launches[1].reason


def started(arguments: list[str], folder: Path, number: int) -> tuple[subprocess.Popen, int]:
    """`parity bench` in a process of its own, and its child's id, once launch `number` hangs in its third step."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parity = subprocess.Popen([sys.executable, "-m", "conformance.cli", *arguments], **silent)
    partial, deadline = folder / "bench" / f".launch-{number}.partial", time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        lines = (partial / STEPS).read_text().count("\n") if (partial / STEPS).is_file() else 0
        if lines == 2 and (process := json.loads((partial / "launch.json").read_text())["process"]):
            return parity, int(process.split("/")[1])
        time.sleep(0.02)
    parity.kill()
    raise AssertionError(f"launch {number} did not come so far")


def test_ctrl_c_keeps_whole_launches_and_the_same_command_goes_on(arguments, tmp_path):
    """The interrupted launch stays with its steps, ends at once, and another is launched for it."""
    hanging = arguments("--hang", "2", "--at-launch", "2")
    parity, child = started(hanging, tmp_path, 2)
    parity.send_signal(signal.SIGINT)
    assert parity.wait(WAIT_S) == STOPPED
    assert not process_identity(child)
    assert outcomes(tmp_path) == [OK, INTERRUPTED]
    assert len(TrainingMeasurements(tmp_path / "bench").steps(2)) == 2
    assert main(hanging) == NOT_DECIDED
    assert outcomes(tmp_path) == [OK, INTERRUPTED, OK]
    seeds = [launch.seed for launch in TrainingMeasurements(tmp_path / "bench").launches]
    assert seeds[1] == seeds[2] == seeds[0] + 1


def test_a_launch_whose_launcher_was_killed_is_not_lost(arguments, tmp_path, capsys):
    """While it still runs nothing goes on; then it is in the bundle as interrupted."""
    hanging = arguments("--hang", "2", "--at-launch", "1", launches=1)
    parity, child = started(hanging, tmp_path, 1)
    parity.kill()
    parity.wait()
    assert main(hanging) == BAD_INPUT
    assert f"launch 1 is still running as process {child}" in capsys.readouterr().err
    os.kill(child, signal.SIGKILL)
    while process_identity(child):
        time.sleep(0.02)
    assert main(hanging) == NOT_DECIDED
    assert outcomes(tmp_path) == [INTERRUPTED, OK]
    lost = TrainingMeasurements(tmp_path / "bench").launches[0]
    assert lost.reason == "its launcher was ended" and lost.ended_ns > lost.spawned_ns  # it was paid for until its last step


def test_a_launch_that_the_manifest_does_not_know_yet_is_kept(arguments, tmp_path):
    """This process may end between the two: what was whole is whole, and nothing is launched for it."""
    main(arguments())
    before = TrainingMeasurements(tmp_path / "bench")
    files = {name: digest for name, digest in before.manifest.files.items() if not name.startswith("launch-2/")}
    (before.path / MANIFEST).write_text(canonical_json(asdict(replace(before.manifest, files=files))))
    main(arguments())
    after = TrainingMeasurements(tmp_path / "bench")
    assert (after.launches, after.manifest.files) == (before.launches, before.manifest.files)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"launches": 0}, "--launches 0: at least 1"),
        ({"steps": 52}, "--steps 52: 1 to 51, which the recipe has"),
        ({"warm-up": 4}, "--warm-up 4: 0 to 3"),
        ({"machine": "v9"}, "machine 'v9' is not one of v6e-8, v5p-8, H100-2"),
        ({"recipe": "none.toml"}, "recipe none.toml: no such file"),
        ({"reference-bundle": "a", "reference-bench": "b"}, "give one of them"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(arguments, tmp_path, change, words, capsys):
    assert main(arguments(**change)) == BAD_INPUT
    assert words in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()


def test_what_is_missing_is_named(capsys):
    assert main(["bench", "--side", "port", "--recipe", "r.toml"]) == BAD_INPUT
    assert "--out is missing" in capsys.readouterr().err
