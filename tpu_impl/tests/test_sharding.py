"""The port on meshes: a small Gemma 4 (a local and a global layer of the tiny one) on 8 CPU devices, in one process and in two."""

import dataclasses
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from tunix.sft.sharding_utils import get_sharding

from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.recipe import Sharding, load_recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.sharding import MESHES, Mesh, sharding_recipe, split_axes, stream_share
from conformance.contract.topology import read_topology
from fixtures.two_layers import cut
from tpu_impl.abstract import RANK, abstract_leaves, topology_31b
from tpu_impl.adapter import attach_adapter
from tpu_impl.layout import base_tensors, lora_tensors
from tpu_impl.mesh_processes import DEVICES, PAIR, WIDEST, Job, Lost, free_port, lines_in, lose_one, with_devices
from tpu_impl.model import load_checkpoint
from tpu_impl.processes import LOST
from tpu_impl.sharding import ROWS_SPEC, abstract_mesh, fitted_spec, own_rows, spec_of
from tpu_impl.tests.on_8_devices import TRAINED_STEPS

RECIPE = load_recipe(Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml")
RECORDED = ("batches", "weights", "logits", "gradients")  # by `record` on a mesh
ROUNDING = 1e-5  # of a gradient; sums over 8 devices come in another order


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """The sharding rung's recipe file, for a checkpoint of two layers."""
    folder = tmp_path_factory.mktemp("small")
    return write_recipe(folder / "recipe.toml", sharding_recipe(cut(RECIPE, folder)))


@pytest.fixture(scope="module")
def answers(small) -> dict:
    command = [sys.executable, "-m", "tpu_impl.tests.on_8_devices", str(small)]
    return json.loads(subprocess.run(command, env=with_devices(8), stdout=subprocess.PIPE, check=True).stdout)


@pytest.fixture(scope="module")
def model(small):
    recipe = load_recipe(small)
    return attach_adapter(load_checkpoint(recipe.checkpoint_dir), recipe)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.name)
def test_a_devices_part_is_the_hubs_part(small, model, mesh):
    """What the first device holds of a variable is, in the hub's layout, the first block of the tensor that the contract splits."""
    topology = read_topology(load_recipe(small).checkpoint_dir)
    for tensor in base_tensors(model) + lora_tensors(model):
        value = np.arange(math.prod(tensor.variable.shape)).reshape(tensor.variable.shape)
        part = NamedSharding(abstract_mesh(mesh), spec_of(tensor, topology, mesh)).shard_shape(value.shape)
        sizes = [1 if axis is None else mesh.size(axis) for axis in split_axes(tensor.name, topology, mesh)]
        hub = tensor.turn(value)
        block = hub[tuple(slice(length // size) for length, size in zip(hub.shape, sizes, strict=True))]
        assert np.array_equal(tensor.turn(value[tuple(map(slice, part))]), block), tensor.name


def test_a_wrong_dimension_is_another_part(small, model):
    """Control: a split of H, where the contract splits heads, gives a device other rows of the hub's tensor."""
    tensor = next(tensor for tensor in base_tensors(model) if tensor.name.endswith("q_proj.weight"))
    value = np.arange(math.prod(tensor.variable.shape)).reshape(tensor.variable.shape)
    assert not np.array_equal(tensor.turn(value[..., : value.shape[2] // 2]), tensor.turn(value)[: tensor.turn(value).shape[0] // 2])


def test_rows_that_the_mesh_does_not_divide_are_refused():
    """7 rows over 8 devices are refused by name of the mesh; Tunix gives all 7 to every device without a word."""
    mesh = abstract_mesh(Mesh(8, 1))
    with pytest.raises(ContractError, match="7 rows cannot be split over 8 devices"):
        own_rows(7, mesh)
    assert get_sharding(np.ones((7, 3)), mesh, ROWS_SPEC).spec == jax.sharding.PartitionSpec()  # control: the stock


def test_activations_are_split_as_far_as_the_mesh_divides():
    """4 heads lie on 2 devices of tp, and whole on 8; rows lie over data and fsdp together."""
    names = ("fsdp", None, "tp", None)
    assert fitted_spec(names, (8, 5, 4, 3), abstract_mesh(Mesh(4, 2))) == jax.sharding.PartitionSpec(("data", "fsdp"), None, "tp", None)
    assert fitted_spec(names, (8, 5, 4, 3), abstract_mesh(Mesh(1, 8)))[2] is None


def test_a_mesh_gives_the_gradients_of_one_device(answers):
    """Gradients, their global norm: the same on fsdp 4 x tp 2 as on one device, to rounding; the same bits when run again."""
    assert max(answers["difference"].values()) < ROUNDING
    assert answers["norms"][0] == pytest.approx(answers["norms"][1], rel=ROUNDING)
    assert max(answers["again"].values()) == 0
    assert max(answers["difference"].values()) > 0  # control: another order of sums shows, so both were computed


def test_a_step_compiles_once(answers):
    """Two trainers on a mesh take one program for gradients and one for the update; a second width is seen as a second one."""
    assert answers["compiles"] == 1
    assert answers["second_width"] == 1  # control


def test_every_leaf_lies_where_the_contract_says(small, answers):
    """Read back from the arrays: weights, adapters, moments, accumulator; a leaf without its rule is reported whole."""
    topology, mesh = read_topology(load_recipe(small).checkpoint_dir), Mesh(4, 2)
    assert {leaf["group"] for leaf in answers["leaves"]} == {"weight", "adapter", "m", "v", "accumulator"}
    for leaf in answers["leaves"]:
        axes = split_axes(leaf["name"], topology, mesh)
        assert tuple(leaf["axes"]) == axes, leaf
        assert leaf["device_shape"] == [n // (mesh.size(axis) if axis else 1) for n, axis in zip(leaf["shape"], axes, strict=True)]
    dropped = answers["dropped"]
    assert dropped["axes"] == [None, None]
    assert dropped["device_shape"] == dropped["shape"]


def test_every_activation_lies_over_the_mesh(answers):
    """Residual stream, keys and logits; without the constraints XLA computes all rows on every device (control)."""
    for leaf in answers["streams"]:
        assert leaf["device_shape"] == stream_share(leaf["shape"], Mesh(4, 2)), leaf
    assert any(leaf["device_shape"][0] == leaf["shape"][0] for leaf in answers["free_streams"])


def test_tunixs_own_notes_do_not_fit(answers):
    """Stock: tp 4 is asked of the 2 KV heads of a global layer, and JAX refuses it."""
    assert "divi" in answers["stock"]


def test_each_shard_takes_its_own_rows(small, answers):
    """The four row shards hold the plan's rows of step 0 in order, two each, none twice."""
    from conformance.contract.plan import make_plan

    planned = make_plan(load_recipe(small)).steps[0].rows
    assert answers["rows"] == [list(planned[i : i + 2]) for i in range(0, 8, 2)]


def test_the_31b_is_split_without_memory():
    """Every leaf above its share names a reason, and only such leaves do; tp 8 leaves K of the global layers whole."""
    leaves = [(mesh, leaf) for mesh, leaf in abstract_leaves(RECIPE)]
    assert all(leaf.device_bytes > leaf.ideal_bytes for _, leaf in leaves if leaf.reason)
    assert all(leaf.reason for _, leaf in leaves if leaf.device_bytes > max(1.02 * leaf.ideal_bytes, 1e6))
    whole = [leaf for mesh, leaf in leaves if mesh == Mesh(1, 8) and leaf.group == "weight" and leaf.reason]
    assert len(whole) == 10
    assert {leaf.device_bytes for leaf in whole} == {4 * 512 * 5376 * 2}
    sides = sum(weight.in_features + weight.out_features for weight in topology_31b().adapted(RECIPE.adapter.targets))
    assert sum(leaf.bytes for mesh, leaf in leaves if mesh == Mesh(4, 1) and leaf.group == "adapter") == 4 * RANK * sides


def test_two_processes_are_one_run_and_outlive_a_kill(small, answers, tmp_path):
    """2 processes x 4 devices train as one with 8; when one is killed the other ends, and both, started again, go on bit-equal."""
    job = Job(small, tmp_path)
    losses = [line["loss"] for line in lines_in(job.run(WIDEST, PAIR, "whole", TRAINED_STEPS) / "0")]
    assert losses == pytest.approx(answers["losses"], rel=1e-4)
    assert len(set(losses)) == TRAINED_STEPS  # control: every step has a loss of its own
    outlives(lose_one(job, tmp_path / "whole"))
    outlives(lose_one(job, tmp_path / "whole", lost=0, by=signal.SIGTERM))  # the coordinator, by the polite signal


def outlives(lost: Lost) -> None:
    assert lost.exit_code in (LOST, -signal.SIGABRT)  # the port's own, or JAX's where heartbeats are missed first
    assert lost.message
    assert 0 < lost.resumed_step < TRAINED_STEPS
    assert lost.equal


@pytest.mark.nightly  # two recordings, about four minutes
def test_two_processes_record_what_one_does(small, tmp_path):
    """`record` as 2 processes x 4 devices writes the bundle of 1 x 8; sums over two machines' parts come in another order."""
    recipe = load_recipe(small)
    on_8 = write_recipe(tmp_path / "fsdp8.toml", dataclasses.replace(recipe, sharding=Sharding(fsdp=8)))
    one, two = (recorded(on_8, tmp_path / f"record-{count}", count) for count in (1, PAIR))
    for rung in RECORDED:
        assert {*two.arrays(rung)} == {*one.arrays(rung)}, rung
        for key, value in single(one.arrays(rung)).items():
            assert np.abs(two.array(rung, key) - value).max() <= 10 * ROUNDING * np.abs(value).max(), f"{rung}: {key}"
    assert two.lines("batches", "consumed") == one.lines("batches", "consumed")
    assert not np.array_equal(one.array("logits", "f32/warm/logits"), one.array("logits", "f32/base/logits"))  # control


def single(arrays: dict) -> dict:
    """Those of float32: in bfloat16 another order of sums is a rounding step."""
    return {key: value for key, value in arrays.items() if value.dtype == np.float32 and not key.startswith("bf16")}


def recorded(recipe: Path, out: Path, processes: int) -> Bundle:
    """The port's own command, once for each process."""
    command = [sys.executable, "-m", "tpu_impl", "record", "--recipe", str(recipe), "--out", str(out), "--rungs", ",".join(RECORDED)]
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", str(processes)]
    started = [
        subprocess.Popen([*command, *place, "--process-id", str(index)], env=with_devices(DEVICES // processes))
        for index in range(processes)
    ]
    assert [process.wait() for process in started] == [0] * processes
    return Bundle(out)
