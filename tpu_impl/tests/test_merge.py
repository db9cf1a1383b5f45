"""The merge is the float64 merge, rounded once."""

import numpy as np
import pytest

from conformance.contract.checkpoint_files import read_metadata, read_tensors, shard_names
from conformance.contract.draws import loud_adapter
from tpu_impl.merge import merge, wrong_merges


@pytest.fixture(scope="module")
def adapter(session):
    return loud_adapter(session.recipe, session.weights)


def exact(session, adapter, weight: str) -> np.ndarray:
    """W + scale · B·A in float64, rounded into the base's dtype."""
    base = read_tensors(session.recipe.checkpoint_dir)[f"{weight}.weight"]
    delta = adapter[f"{weight}.lora_B"].astype(np.float64) @ adapter[f"{weight}.lora_A"].astype(np.float64)
    return (base.astype(np.float64) + session.recipe.scale * delta).astype(base.dtype)


def unequal_share(merged: dict, session, adapter) -> float:
    """Over all adapted weights together."""
    wrong = [merged[weight.name] != exact(session, adapter, weight.name) for weight in session.weights]
    return float(np.mean(np.concatenate([one.ravel() for one in wrong])))


def test_the_merge_is_rounded_once(session, adapter, tmp_path):
    merge(session.recipe, adapter, tmp_path / "merged")
    tensors = read_tensors(tmp_path / "merged")
    assert unequal_share({name.removesuffix(".weight"): value for name, value in tensors.items()}, session, adapter) < 1e-4


@pytest.mark.parametrize("control", ["base", "alpha", "transposed"])
def test_a_wrong_merge_is_told_apart(session, adapter, control):
    wrong = wrong_merges(session.recipe, adapter, tuple(weight.name for weight in session.weights))
    assert unequal_share(wrong[control], session, adapter) > 0.1


def test_everything_else_is_the_bases(session, adapter, tmp_path):
    """Names, shards, metadata, dtypes, and the tensors that no adapter touches."""
    base, folder = session.recipe.checkpoint_dir, tmp_path / "merged"
    merge(session.recipe, adapter, folder)
    before, after = read_tensors(base), read_tensors(folder)
    touched = {f"{weight.name}.weight" for weight in session.weights}
    assert list(before) == list(after) and shard_names(base) == shard_names(folder)
    assert all(read_metadata(folder / shard) == {"format": "pt"} for shard in shard_names(folder))
    assert {name for name in before if not np.array_equal(before[name], after[name])} == touched
    assert {value.dtype.name for value in after.values()} == {"bfloat16"}
