"""Partial bundles after the fact: what is known is judged, what is not is not proven, and what is another recipe's is refused."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from conformance.adapter_folder import CONFIG, TENSORS
from conformance.checks import checks, run_check
from conformance.cli import main
from conformance.commands import ROOT
from conformance.contract.bundle import Bundle
from conformance.contract.checkpoint_files import read_file, write_file
from conformance.contract.errors import NotRecorded
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.faults.grounds import fixtures
from conformance.faults.small import write_small
from conformance.findings import Verdict
from conformance.pair import Pair, check_pair
from conformance.report.facts import Inputs
from conformance.report.forms import write_report

STEPS = 2


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A recipe of 2 steps."""
    folder = tmp_path_factory.mktemp("small")
    recipe = load_recipe(write_small(folder))
    rows = Path(recipe.data.rows)
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[: STEPS * recipe.batch.effective]))
    return write_recipe(folder / "two.toml", dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, epochs=1)))


@pytest.fixture(scope="module")
def run(small, tmp_path_factory) -> Path:
    """A plain run of the reference, as people have it: adapter/ and checkpoint-2/trainer_state.json."""
    out = tmp_path_factory.mktemp("run") / "run"
    command = [sys.executable, "-m", "reference", "train", "--recipe", str(small), "--out", str(out), "--save-every", str(STEPS)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


@pytest.fixture
def state(run, tmp_path) -> Path:
    """A trainer_state.json to edit."""
    return Path(shutil.copy(run / f"checkpoint-{STEPS}" / "trainer_state.json", tmp_path))


@pytest.fixture
def adapter(run, tmp_path) -> Path:
    """An adapter folder to edit."""
    return Path(shutil.copytree(run / "adapter", tmp_path / "adapter"))


def take(small: Path, out: Path, *sources: object, stack: str = "port") -> int:
    return main(["import", "--recipe", str(small), "--out", str(out), "--stack", stack, *map(str, sources)])


def refused(capsys, small: Path, *sources: object) -> str:
    """The one sentence with which an import is refused; nothing is left."""
    out = small.parent / "refused"
    assert take(small, out, *sources) == 2
    assert not out.exists()
    error = capsys.readouterr().err
    assert error.startswith("parity: ") and error.count("\n") == 1
    return error


def verdicts(pair: Pair) -> dict[str, Verdict]:
    """Check -> verdict, on the rungs that both bundles have."""
    found, given = {}, fixtures(pair)
    for rung, check in checks().values():
        if pair.reference.has(rung) and pair.port.has(rung):
            try:
                found[check.__name__] = run_check(rung, check, pair.reference, pair.port, **given).verdict
            except NotRecorded:
                found[check.__name__] = Verdict.NOT_PROVEN
    return found


def test_what_is_known_passes_and_the_rest_is_not_proven(small, run, tmp_path, capsys):
    """Names, shapes and count of the adapter, and the rate of every step; no check fails for want of what nobody recorded."""
    sources = ("--adapter", run / "adapter", "--trainer-state", run / f"checkpoint-{STEPS}" / "trainer_state.json")
    for stack in ("reference", "port"):
        assert take(small, tmp_path / stack, *sources, stack=stack) == 0
    assert "recorded in part" in capsys.readouterr().out
    pair = Pair(load_recipe(small), *(Bundle(tmp_path / stack) for stack in ("reference", "port")))
    check_pair(pair)
    found = verdicts(pair)
    passed = {name for name, verdict in found.items() if verdict is Verdict.PASS}
    assert passed == {
        "test_learning_rates_are_the_tables",
        "test_the_adapted_weights_are_the_recipes",
        "test_every_layer_type_has_its_set",
        "test_adapter_shapes_are_pefts",
        "test_trainable_parameters_are_counted_equal",
    }
    assert set(found.values()) == {Verdict.PASS, Verdict.NOT_PROVEN} and len(found) > 25
    html = write_report(tmp_path, Inputs(pair.recipe, [], pair.reference, pair.port), lambda finding, findings: ()).read_text()
    assert "recorded trajectory in part" in html  # in the place of the curves
    logged = pair.port.lines("trajectory", "logged")
    assert [line["logged_step"] for line in logged] == [1, 2] and all(line["loss"] > 0 for line in logged)
    saved = read_file(run / "adapter" / TENSORS)
    assert len(pair.port.arrays("trajectory", "f32/final/")) == len(saved)
    assert "losses as float32" in pair.port.partial["trajectory"]
    assert pair.port.manifest["imported"][1]["precision"] == "losses as float32"
    assert (pair.port.folder("adapter") / CONFIG).is_file()


def test_a_wrong_rate_fails(small, state, tmp_path):
    """Control: an imported rate that is not the table's is a failure, not a gap."""
    values = json.loads(state.read_text())
    values["log_history"][1]["learning_rate"] *= 1.01
    state.write_text(json.dumps(values))
    for stack in ("reference", "port"):
        assert take(small, tmp_path / stack, "--trainer-state", state, stack=stack) == 0
    pair = Pair(load_recipe(small), *(Bundle(tmp_path / stack) for stack in ("reference", "port")))
    assert verdicts(pair)["test_learning_rates_are_the_tables"] is Verdict.FAIL


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda log: log.pop(0), "learning rates of 1 logged steps, from 2 to 2; the plan has 2 steps"),
        (lambda log: log[0].update(learning_rate=log[1]["learning_rate"]), "that of the plan's next step"),
        (lambda log: [entry.pop("learning_rate", None) for entry in log], "no learning rates in it"),
    ],
)
def test_rates_that_are_not_known_are_left_out(edit, words, small, state, tmp_path, capsys):
    """Gaps, and the rates of older Trainers that log a step late, are said and not judged."""
    values = json.loads(state.read_text())
    edit(values["log_history"])
    state.write_text(json.dumps(values))
    assert take(small, tmp_path / "port", "--trainer-state", state) == 0
    assert f"not imported: {state}: " in (shown := capsys.readouterr().out) and words in shown
    assert Bundle(tmp_path / "port").rungs == ("trajectory",)


def test_rounded_losses_are_called_so(small, state, tmp_path):
    """Older Trainers leave 4 decimals."""
    values = json.loads(state.read_text())
    for entry in values["log_history"]:
        entry |= {"loss": round(entry["loss"], 4)} if "loss" in entry else {}
    state.write_text(json.dumps(values))
    assert take(small, tmp_path / "port", "--trainer-state", state) == 0
    assert "losses rounded to 4 decimals" in Bundle(tmp_path / "port").partial["trajectory"]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text[: len(text) // 2], "not whole JSON"),
        (lambda text: text.replace(f'"max_steps": {STEPS}', '"max_steps": 7'), f"max_steps = 7; the recipe's plan has {STEPS}"),
        (lambda text: "{}", "not a trainer_state.json"),
        (lambda text: text.replace('"loss"', '"eval_loss"'), "no training loss"),
    ],
)
def test_a_wrong_state_is_refused(edit, words, small, state, capsys):
    state.write_text(edit(state.read_text()))
    assert words in refused(capsys, small, "--trainer-state", state)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("r", 8, "r = 8; the recipe's is 12"),
        ("lora_alpha", 12.0, "lora_alpha = 12.0; the recipe's is 24.0"),
        ("use_rslora", True, "use_rslora = True"),
        ("modules_to_save", ["lm_head"], "modules_to_save"),
        ("bias", "all", "bias = 'all'"),
    ],
)
def test_another_recipes_adapter_is_refused(key, value, words, small, adapter, capsys):
    config = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps(config | {key: value}))
    assert words in refused(capsys, small, "--adapter", adapter)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _without(path: Path, ending: str) -> None:
    tensors = {name: value.copy() for name, value in read_file(path).items()}
    write_file(path, {name: value for name, value in tensors.items() if not name.endswith(ending)})


def _narrow(path: Path) -> None:
    tensors = {name: value.copy() for name, value in read_file(path).items()}
    write_file(path, {name: value[:8] if "lora_A" in name else value[:, :8] for name, value in tensors.items()})


def _foreign(path: Path) -> None:
    tensors = {name.replace("layers.3.", "layers.99."): value.copy() for name, value in read_file(path).items()}
    write_file(path, tensors)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_cut, "not a whole safetensors file"),
        (lambda path: _without(path, "layers.3.mlp.up_proj.lora_B.weight"), "up_proj.lora_A is there and"),
        (_narrow, "at the recipe's rank of 12 it is (12, 288)"),
        (_foreign, "layers.99.mlp.down_proj.lora_A is no adapter tensor"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_a_damaged_adapter_is_refused(edit, words, small, adapter, capsys):
    """Cut off, without a partner, of another rank whatever its config says, of another model, absent."""
    edit(adapter / TENSORS)
    assert words in refused(capsys, small, "--adapter", adapter)


def rates_of(small: Path) -> list[float]:
    return make_plan(load_recipe(small)).learning_rates.tolist()


@pytest.fixture
def events(small, tmp_path) -> Path:
    """What the Trainer's TensorBoard callback writes for a run of the recipe."""
    rates = rates_of(small)
    with SummaryWriter(str(tmp_path / "tb")) as writer:
        for step, rate in enumerate(rates, 1):
            writer.add_scalar("train/loss", 3.0 - step / 7, step)
            writer.add_scalar("train/learning_rate", rate, step)
            writer.add_text("args", "something else")
    return tmp_path / "tb"


def test_tensorboard_scalars_are_read(small, events, tmp_path):
    assert take(small, tmp_path / "port", "--tensorboard", events) == 0
    bundle = Bundle(tmp_path / "port")
    assert [line["loss"] for line in bundle.lines("trajectory", "logged")] == pytest.approx([3 - 1 / 7, 3 - 2 / 7], rel=1e-7)
    assert [line["learning_rate"] for line in bundle.lines("batches", "steps")] == pytest.approx(rates_of(small), rel=1e-7)


def test_damaged_or_mixed_events_are_refused(small, events, tmp_path, capsys):
    """A file that is cut off, two runs in one folder, and a folder without event files."""
    (file,) = events.glob("*tfevents*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert "is cut off or damaged" in refused(capsys, small, "--tensorboard", events)
    file.write_bytes(whole)
    with SummaryWriter(str(events / "second")) as writer:
        writer.add_scalar("train/loss", 9.0, 1)
    assert "give one run's folder" in refused(capsys, small, "--tensorboard", events)
    assert "no TensorBoard event file" in refused(capsys, small, "--tensorboard", tmp_path / "none")


def test_tensorboard_without_its_reader_says_what_is_missing(small, events, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
    assert "pip install 'tpu-parity[import]'" in refused(capsys, small, "--tensorboard", events)


def test_nothing_and_twice_the_same_are_refused(small, adapter, capsys):
    assert "nothing to import" in refused(capsys, small)
    assert "give one of them" in refused(capsys, small, "--adapter", adapter, "--orbax", adapter)


def test_an_orbax_step_without_the_port_says_what_is_missing(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("conformance.importing.find_spec", lambda name: None)
    assert "pip install 'tpu-parity[port]'" in refused(capsys, small, "--orbax", tmp_path)


def test_a_refused_orbax_step_is_told_in_the_ports_words(small, tmp_path, capsys, monkeypatch):
    """The port reads it in a process of its own; its last line is the error, without what its libraries said before."""
    failed = subprocess.CompletedProcess([], 2, "", "WARNING: something\nport: step: no whole step of an Orbax checkpoint\n")
    monkeypatch.setattr("conformance.importing.subprocess.run", lambda *_, **__: failed)
    assert refused(capsys, small, "--orbax", tmp_path) == "parity: step: no whole step of an Orbax checkpoint\n"
