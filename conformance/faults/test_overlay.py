"""The overlay: what was recorded anew covers the clean bundle, group by group, and nothing else."""

import numpy as np
import pytest

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.faults.overlay import Overlay

A, B = "model.language_model.layers.0.mlp.up_proj.lora_A", "model.language_model.layers.0.mlp.up_proj.lora_B"


def write(path, recipe, plan, **runs) -> Bundle:
    """Gradients of variants, and a loss a run."""
    with BundleWriter(path, stack="port", recipe=recipe, plan=plan) as writer:
        for run, (tensors, loss) in runs.items():
            for tensor, value in tensors.items():
                writer.array("gradients", f"{run}/{tensor}", np.full((2, 3), value, np.float32))
            writer.line("trajectory", "run", run=run, precision="f32", seed=0, dropout=0.0)
            writer.line("trajectory", "step", run=run, step=0, loss=loss, grad_norm=1.0, learning_rate=0.1, tokens=2, loss_tokens=1)
        writer.line("adapters", "frozen", name=str(len(runs)), sha256_before="a", sha256_after="a")
    return Bundle(path)


@pytest.fixture
def overlay(tmp_path, recipe, plan) -> Overlay:
    clean = write(tmp_path / "clean", recipe, plan, f32=({A: 1, B: 2}, 3.0), cold=({A: 0, B: 4}, 5.0))
    return Overlay(clean, write(tmp_path / "faulty", recipe, plan, f32=({A: 9}, 7.0)))


def test_a_group_is_recorded_anew_as_a_whole(overlay):
    """A tensor that the fault lost is not filled in from the clean bundle."""
    assert set(overlay.arrays("gradients", "f32/")) == {A}
    assert overlay.array("gradients", f"f32/{A}").flat[0] == 9


def test_other_groups_are_the_clean_ones(overlay):
    assert set(overlay.arrays("gradients", "cold/")) == {A, B}


def test_lines_are_covered_by_what_they_are_about(overlay):
    """Lines of a run are replaced run by run; a series that is recorded whole is replaced whole."""
    assert [(line["run"], line["loss"]) for line in overlay.lines("trajectory", "step")] == [("cold", 5.0), ("f32", 7.0)]
    assert [line["name"] for line in overlay.lines("adapters", "frozen")] == ["1"]


def test_a_stream_that_is_no_longer_recorded_is_not_filled_in(tmp_path, recipe, plan):
    """The streams of a precision are recorded together; the other precision's are the clean ones."""
    bundles = []
    for name, streams in (("clean", [("f32", "norm"), ("f32", "logits"), ("bf16", "norm")]), ("faulty", [("f32", "norm")])):
        with BundleWriter(tmp_path / name, stack="port", recipe=recipe, plan=plan) as writer:
            for precision, stream in streams:
                writer.line("logits", "dtypes", precision=precision, stream=stream, dtype="float32")
        bundles.append(Bundle(tmp_path / name))
    left = [(line["precision"], line["stream"]) for line in Overlay(*bundles).lines("logits", "dtypes")]
    assert left == [("bf16", "norm"), ("f32", "norm")]


def test_it_has_what_either_has(overlay):
    assert overlay.has("gradients")
    assert not overlay.has("merge")


def test_a_part_of_which_nothing_is_left_is_empty(tmp_path, recipe, plan):
    """A fault that finds no weight records no line: the clean ones must not stand in. Without the part's name they would (control)."""
    clean = write(tmp_path / "clean", recipe, plan, f32=({A: 1}, 3.0))
    with BundleWriter(tmp_path / "faulty", stack="port", recipe=recipe, plan=plan) as writer:
        writer.line("trajectory", "run", run="f32", precision="f32", seed=0, dropout=0.0)
    faulty = Bundle(tmp_path / "faulty")
    assert Overlay(clean, faulty, ("adapters frozen",)).lines("adapters", "frozen") == []
    assert Overlay(clean, faulty).lines("adapters", "frozen")
