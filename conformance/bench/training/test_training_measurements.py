"""A training bundle is opened whole or refused."""

import json
from dataclasses import replace

import pytest

from conformance.bench.bundle_files import MANIFEST
from conformance.bench.synthetic_training import Scene, write_manifest, write_training
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import FAILED, INTERRUPTED, LAUNCH
from conformance.contract.digest import canonical_json
from conformance.contract.errors import ContractError
from conformance.contract.timed_steps import STEPS


@pytest.fixture
def measured(tmp_path, plan) -> TrainingMeasurements:
    return write_training(tmp_path / "measured", plan, Scene(step_ms=(100.0, 101.0), steps=4))


def test_what_is_written_reads_back(measured, plan):
    """Launches by number, steps in order; the recipe is the one that was timed."""
    assert [launch.number for launch in measured.whole] == [1, 2]
    assert [step.step for step in measured.steps(2)] == [0, 1, 2, 3]
    assert measured.recipe.digest == plan.recipe.digest
    assert measured.left == 0


def test_edited_missing_and_foreign_files_are_refused(measured):
    """Control: untouched, it opens."""
    steps = measured.path / "launch-1" / STEPS
    text = steps.read_text()
    steps.write_text(text.replace('"loss":4.0', '"loss":3.0'))
    with pytest.raises(ContractError, match=r"launch-1/steps\.jsonl is not the file that was recorded"):
        TrainingMeasurements(measured.path)
    steps.unlink()
    with pytest.raises(ContractError, match=r"launch-1/steps\.jsonl is missing"):
        TrainingMeasurements(measured.path)
    steps.write_text(text)
    (measured.path / "launch-1" / "more.json").write_text("{}")
    with pytest.raises(ContractError, match=r"launch-1/more\.json is not in manifest\.json"):
        TrainingMeasurements(measured.path)
    (measured.path / "launch-1" / "more.json").unlink()
    assert len(TrainingMeasurements(measured.path).launches) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [({"version": 2}, "version 2; this suite reads 1"), ({"kind": "serving"}, "kind 'serving'; here it is 'training'")],
)
def test_another_kind_or_version_is_refused(measured, change, words):
    path = measured.path / MANIFEST
    path.write_text(canonical_json(json.loads(path.read_text()) | change))
    with pytest.raises(ContractError, match=words):
        TrainingMeasurements(measured.path)


@pytest.mark.parametrize("change", [{"number": 7}, {"outcome": "good"}])
def test_a_launch_of_another_number_or_outcome_is_refused(measured, change):
    path = measured.path / "launch-2" / LAUNCH
    path.write_text(canonical_json(json.loads(path.read_text()) | change))
    write_manifest(measured.path, measured.manifest)
    with pytest.raises(ContractError, match="the number is the folder's, the outcome one of ok, failed, interrupted"):
        _ = TrainingMeasurements(measured.path).launches


@pytest.mark.parametrize(("outcome", "left"), [(FAILED, 0), (INTERRUPTED, 1)])
def test_only_an_interrupted_launch_is_launched_again(tmp_path, plan, outcome, left):
    """A failed one counts, and is in no figure."""
    scene = Scene(step_ms=(100.0, 101.0), steps=2, change_launch=lambda one: replace(one, outcome=outcome) if one.number == 2 else one)
    measured = write_training(tmp_path / "measured", plan, scene)
    assert (len(measured.launches), len(measured.whole), measured.left) == (2, 1, left)
