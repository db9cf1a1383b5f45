"""The merge is the exact one rounded once; wrong merges are told apart; the files have the base's form."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.contract.checkpoint_files import read_metadata, read_tensors, shard_names
from conformance.contract.draws import loud_adapter
from conformance.contract.errors import ContractError
from conformance.contract.recipe import load_recipe
from conformance.contract.topology import read_topology
from conformance.merging import unequal_share
from tpu_impl.adapter import adapted
from tpu_impl.merge import Merged, merge, wrong_merges

RECIPE = load_recipe(Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml")
WEIGHTS = adapted(read_topology(RECIPE.checkpoint_dir), RECIPE)
NAMES = tuple(weight.name for weight in WEIGHTS)
LOUD = loud_adapter(RECIPE, WEIGHTS)
ROUNDED_OTHERWISE = 1e-4  # share of elements; tolerances.toml's merge_exact_share


@pytest.fixture(scope="module")
def base():
    return read_tensors(RECIPE.checkpoint_dir)


def unequal(weights, base) -> float:
    """Share of elements, over all adapted weights, that are not the float64 merge rounded once."""
    shares, sizes = [], []
    for name in NAMES:
        b, a = (LOUD[f"{name}.lora_{side}"].astype(np.float64) for side in "BA")
        exact = base[f"{name}.weight"].astype(np.float64) + RECIPE.scale * (b @ a)
        shares.append(unequal_share(weights[name], exact))
        sizes.append(exact.size)
    return float(np.average(shares, weights=sizes))


def test_the_merge_is_the_exact_one_rounded_once(base):
    merged = Merged(RECIPE, LOUD)
    assert unequal({name: merged[f"{name}.weight"] for name in NAMES}, base) <= ROUNDED_OTHERWISE


@pytest.mark.parametrize("control", ["base", "alpha", "transposed"])
def test_a_wrong_merge_is_told_apart(base, control):
    """Control: no merge, alpha x 1.01, the delta's bytes in the other order."""
    assert unequal(wrong_merges(RECIPE, LOUD, NAMES)[control], base) > 100 * ROUNDED_OTHERWISE


def test_the_files_have_the_bases_form(base, tmp_path):
    """Read back: names, shapes, dtypes, shards and metadata are the base's; exactly the adapted weights changed."""
    merge(RECIPE, LOUD, tmp_path / "merged")
    written = read_tensors(tmp_path / "merged")
    assert {k: (v.dtype, v.shape) for k, v in written.items()} == {k: (v.dtype, v.shape) for k, v in base.items()}
    assert shard_names(tmp_path / "merged") == shard_names(RECIPE.checkpoint_dir)
    assert all(read_metadata(tmp_path / "merged" / name) == {"format": "pt"} for name in shard_names(tmp_path / "merged"))
    changed = {name for name, value in written.items() if not np.array_equal(value, base[name])}
    assert changed == {f"{name}.weight" for name in NAMES}


def test_an_existing_folder_is_left_alone(tmp_path):
    """Control, and a stock defect: Tunix's saver removes the output folder before it writes."""
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(ContractError, match="already there"):
        merge(RECIPE, LOUD, tmp_path)
    assert (tmp_path / "kept").read_text() == "mine"


@pytest.mark.parametrize(("module", "error"), [("tpu_impl.merge", ""), ("reference.merge", "import of torch halted")])
def test_the_ports_merge_needs_no_torch(module, error):
    """It imports where torch cannot be; where torch is installed, Tunix's tensorboardX takes it. Control: the reference's fails."""
    code = f"import sys; sys.modules['torch'] = None; import {module}"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == (not error) and error in done.stderr
