"""An Orbax step, as Tunix's manager saves it, becomes the adapter under hub names, and a partial bundle of the port."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from tunix.sft.checkpoint_manager import CheckpointManager

from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from tpu_impl.orbax_step import read_adapter
from tpu_impl.saver import checkpointing

TINY = __file__.replace("tpu_impl/tests/test_orbax_step.py", "conformance/recipes/tiny.toml")


@pytest.fixture(scope="module")
def step(session, tmp_path_factory):
    """A whole model with the warm adapter, saved."""
    root = tmp_path_factory.mktemp("orbax")
    manager = CheckpointManager(str(root), checkpointing(1))
    manager.save(1, session.adapted(session.warm.adapter), force=True)
    manager.close()
    return root / "1"


def test_the_adapter_comes_back_bit_for_bit(session, step):
    """Every tensor in PEFT's layout; the base weights beside it are left alone."""
    tensors, warm = read_adapter(step), session.warm.adapter
    assert set(tensors) == set(warm)
    assert all(np.array_equal(tensors[name], value) for name, value in warm.items())


def test_it_is_imported(session, step, tmp_path):
    """By the front door, which starts the port for it."""
    command = [sys.executable, "-m", "conformance.cli", "import", "--recipe", TINY, "--stack", "port"]
    subprocess.run([*command, "--out", str(tmp_path / "port"), "--orbax", str(step)], check=True)
    final = Bundle(tmp_path / "port").arrays("trajectory", "f32/final/")
    assert all(np.array_equal(final[name], value) for name, value in session.warm.adapter.items())


@pytest.mark.parametrize("damage", ["metadata", "data", "all"])
def test_a_damaged_step_is_refused(damage, step, tmp_path):
    """Metadata cut off, an array's data cut off, and a folder with nothing in it: one sentence."""
    copy = shutil.copytree(step, tmp_path / "step")
    files = [path for path in (copy / "model_params").rglob("*") if path.is_file()]
    if damage == "all":
        shutil.rmtree(copy / "model_params")
    for path in files if damage == "data" else [copy / "model_params" / "_METADATA"] if damage == "metadata" else []:
        if path.name == "_METADATA" or path.parent.name == "d":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ContractError, match="no whole step of an Orbax checkpoint") as error:
        read_adapter(copy)
    assert "\n" not in str(error.value)
