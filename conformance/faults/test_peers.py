"""The peers' checks, each with what it must let pass and what it must catch."""

import numpy as np
import pytest

from conformance.faults.peers import (
    final_loss,
    keys_and_shapes,
    kl_per_token,
    logit_check,
    merged_against_unmerged,
    strict_logit_check,
)


class Recorded:
    """Reads like a bundle."""

    def __init__(self, arrays=None, lines=None):
        self._arrays, self._lines = arrays or {}, lines or {}

    def array(self, rung, key):
        return self._arrays[rung, key]

    def arrays(self, rung, prefix):
        return {key.removeprefix(prefix): value for (of, key), value in self._arrays.items() if of == rung and key.startswith(prefix)}

    def lines(self, rung, series):
        return self._lines[rung, series]


def logits(shift: float = 0.0):
    """Two tokens' logits over four words; `shift` moves one of the first token's."""
    values = np.asarray([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 1.0, 0.0]], np.float32)
    values[0, 0] += shift
    return Recorded({("logits", "f32/warm/logits"): values})


def losses(last: float):
    steps = [{"run": "bf16", "step": 9, "loss": 7.0}, {"run": "f32", "step": 1, "loss": last}, {"run": "f32", "step": 0, "loss": 3.0}]
    return Recorded(lines={("trajectory", "step"): steps})


def shapes(adapter=(4, 8), merged=(8, 8), weight=(8, 8)):
    tensors = [{"adapter": kind, "name": "up.weight", "shape": list(merged)} for kind in ("trained", "loud")]
    lines = {("weights", "tensors"): [{"name": "up.weight", "shape": list(weight)}], ("merge", "tensors"): tensors}
    return Recorded({("trajectory", "f32/final/up.lora_A"): np.zeros(adapter)}, lines)


def merged(difference: float):
    values = np.zeros((3, 4), np.float32)
    return Recorded({("merge", "loud/unmerged/logits"): values, ("merge", "loud/merged/logits"): values + np.float32(difference)})


def test_kl_is_that_of_the_definition():
    golden, model = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    assert kl_per_token(golden, model) == pytest.approx([0.5 * np.log(2) + 0.5 * np.log(0.5 / 0.75)])
    assert kl_per_token(golden, golden + 3) == pytest.approx([0.0])


@pytest.mark.parametrize(
    ("shift", "caught", "strictly"), [(0.0, False, False), (0.2, False, True), (2.0, True, True), (np.nan, True, True)]
)
def test_the_logit_check_catches_a_moved_token(shift, caught, strictly):
    assert logit_check(logits(), logits(shift), None) is caught
    assert strict_logit_check(logits(), logits(shift), None) is strictly


@pytest.mark.parametrize(
    ("changed", "caught"), [({}, False), ({"adapter": (2, 8)}, True), ({"merged": (8, 9)}, True), ({"weight": (8,)}, True)]
)
def test_another_shape_is_caught(changed, caught):
    assert keys_and_shapes(shapes(), shapes(**changed), None) is caught


def test_a_missing_key_is_caught():
    port = shapes()
    port._arrays.clear()
    assert keys_and_shapes(shapes(), port, None)


@pytest.mark.parametrize(("last", "caught"), [(2.0, False), (2.019, False), (1.979, True), (2.021, True), (np.nan, True)])
def test_the_last_loss_is_held_to_a_percent(last, caught):
    assert final_loss(losses(2.0), losses(last), None) is caught


@pytest.mark.parametrize(("difference", "caught"), [(0.0, False), (9e-3, False), (2e-2, True), (np.nan, True)])
def test_merged_logits_are_held_to_the_adapted_ones(difference, caught):
    assert merged_against_unmerged(None, merged(difference), None) is caught
