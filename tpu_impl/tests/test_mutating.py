"""Mutants in the port: every kind of function can be one, whoever imported it runs the mutant, and it is taken away again."""

from pathlib import Path

import numpy as np
import pytest

from conformance.contract.mutants import Mutant, source_of
from tpu_impl import data
from tpu_impl.data import positions_of
from tpu_impl.faults.mutating import function_of, mutant_planted

ROOT = Path(__file__).parents[2]


def mutant(module: str, function: str, old: str, new: str) -> Mutant:
    source = source_of(module, ROOT)
    assert source.count(old.encode()) == 1
    start = source.index(old.encode())
    return Mutant("m", module, function, "", 0, start, start + len(old), new, "", "")


POSITIONS = mutant("tpu_impl.data", "positions_of", "- 1, 0)", "- 1, 7)")


def test_whoever_imported_a_function_runs_the_mutant():
    with mutant_planted(POSITIONS):
        assert positions_of(np.ones((1, 2), np.bool_)).tolist() == [[7, 7]]
    assert data.positions_of(np.ones((1, 2), np.bool_)).tolist() == [[0, 1]]


def test_a_mutant_that_ends_in_an_error_is_taken_away_too():
    code = function_of(POSITIONS).__code__
    with pytest.raises(ValueError, match="planted"), mutant_planted(POSITIONS):
        raise ValueError("planted")
    assert function_of(POSITIONS).__code__ is code


@pytest.mark.parametrize(
    ("module", "function", "old", "new"),
    [
        ("tpu_impl.step", "loss_and_gradients", "return loss, as_annotated", "return -loss, as_annotated"),  # jit
        ("tpu_impl.optimizer", "_accumulated", "micro_batches)\n\n\ndef clip", "1)\n\n\ndef clip"),  # a cache
        ("tpu_impl.session", "Session.no_adapter", "0 * value", "1 * value"),  # a cached property
        ("tpu_impl.session", "Session.shared", "or self.scratch", "and self.scratch"),  # a property
        ("tpu_impl.lora", "dropout_key", "None if seed is None", "None if seed is not None"),  # a context manager
        ("tpu_impl.train", "Trainer.train", "skip_jit=True, **kwargs)", "skip_jit=False, **kwargs)"),  # uses super()
        ("tpu_impl.optimizer", "clip_as_torch", "norm + CLIP_EPS", "norm - CLIP_EPS"),  # a function inside
    ],
)
def test_every_kind_of_function_can_be_a_mutant(module, function, old, new):
    planted = mutant(module, function, old, new)
    code = function_of(planted).__code__
    with mutant_planted(planted):
        assert function_of(planted).__code__ is not code
    assert function_of(planted).__code__ is code
