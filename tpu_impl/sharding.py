"""One mesh for a run: where every variable, activation and row lies, by the contract's rule."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.interpreters import pxla
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from tunix.models.gemma4 import model as gemma4

from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe
from conformance.contract.sharding import Mesh, check_rows, split_axes
from conformance.contract.topology import Topology
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.layout import HubTensor, base_tensors, lora_tensors, whole_array

AXES = ("data", "fsdp", "tp")
ROWS = ("data", "fsdp")  # together they split the rows
ROWS_SPEC = PartitionSpec(ROWS)
Batch = dict[str, np.ndarray]


def make_mesh(mesh: Mesh) -> jax.sharding.Mesh:
    """Over the first devices. Auto axes: `jax.make_mesh` makes Explicit ones, under which Tunix's model does not run."""
    if mesh.devices > jax.device_count():
        raise ContractError(f"mesh {mesh.name} needs {mesh.devices} devices, here are {jax.device_count()}")
    devices = np.asarray(jax.devices()[: mesh.devices]).reshape([mesh.size(axis) for axis in AXES])
    return jax.sharding.Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """The same mesh without devices: for shapes alone."""
    return AbstractMesh(tuple(mesh.size(axis) for axis in AXES), AXES, axis_types=(AxisType.Auto,) * len(AXES))


STOCK_SHARD = gemma4.shard  # inside `on_mesh` the name means another


@contextmanager
def on_mesh(mesh: jax.sharding.Mesh, corrections: Corrections = ALL) -> Iterator[None]:
    """Inside, Tunix finds the mesh: it reads `with mesh:`, and `jax.set_mesh` would switch its sharding off."""
    shard = fitted_shard if corrections.constrained_streams else STOCK_SHARD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # `with mesh:` is the old way
        with mesh, mock.patch.object(gemma4, "shard", shard):
            yield


def recipes_mesh(recipe: Recipe):
    """A context on the recipe's mesh; without one where a single device is all that it asks for."""
    mesh = Mesh(recipe.sharding.fsdp, recipe.sharding.tp)
    if jax.process_count() > 1 and mesh.devices != jax.device_count():
        raise ContractError(f"mesh {mesh.name} must have the {jax.device_count()} devices of {jax.process_count()} processes")
    return on_mesh(make_mesh(mesh)) if mesh.devices > 1 else nullcontext()


def off_mesh():
    """A context without a mesh, inside one: what a loader arranges needs no devices."""
    return jax.sharding.Mesh(np.empty((), object), ())


def current_mesh() -> jax.sharding.Mesh | None:
    """The mesh of the surrounding `with mesh:`, read as Tunix reads it."""
    mesh = pxla.thread_resources.env.physical_mesh
    return None if mesh.empty else mesh


def contract_mesh(mesh: jax.sharding.Mesh) -> Mesh:
    return Mesh(**{axis: mesh.shape[axis] for axis in AXES})


def fitted_shard(x, names: tuple[str | None, ...], eager: bool = False) -> jax.Array:
    """Puts an activation where Tunix asks for it, as far as the mesh divides it; rows over `data` and `fsdp`.

    Stock: nothing at all when the first device is a CPU; elsewhere an axis that does not divide, such as tp 8 over
    4 KV heads, is refused by JAX, and rows are never split over `data`.
    """
    mesh = current_mesh()
    if mesh is None:
        return jnp.asarray(x)
    sharding = NamedSharding(mesh, fitted_spec(names, x.shape, mesh))
    return jax.device_put(x, sharding) if eager else jax.lax.with_sharding_constraint(x, sharding)


def fitted_spec(names: tuple[str | None, ...], shape: tuple[int, ...], mesh: jax.sharding.Mesh) -> PartitionSpec:
    """`fsdp` on an activation's rows means all that splits rows; an axis that does not divide its dimension is left out."""
    asked = [ROWS if name == "fsdp" and dim == 0 else name for dim, name in enumerate(names)]
    return PartitionSpec(*(name if name and size % _parts(name, mesh) == 0 else None for name, size in zip(asked, shape, strict=True)))


def _parts(name: str | tuple[str, ...], mesh: jax.sharding.Mesh) -> int:
    return int(np.prod([mesh.shape[axis] for axis in ([name] if isinstance(name, str) else name)]))


def spec_of(tensor: HubTensor, topology: Topology, mesh: Mesh) -> PartitionSpec:
    """The contract's split of a hub tensor, on the dimensions of the variable that holds it."""
    axes = split_axes(tensor.name, topology, mesh)
    first = [dim is not None and tensor.dims.index(dim) == place for place, dim in enumerate(tensor.dims)]
    return trimmed(axes[dim] if is_first else None for dim, is_first in zip(tensor.dims, first, strict=True))


def trimmed(axes: Iterable[str | None]) -> PartitionSpec:
    """Without trailing Nones, as jit writes its outputs' specs: a spec that is spelled otherwise would compile a step anew."""
    axes = list(axes)
    while axes and axes[-1] is None:
        axes.pop()
    return PartitionSpec(*axes)


def annotate(model: nnx.Module, topology: Topology, mesh: Mesh) -> None:
    """Every variable's own note of its split, which Tunix reads for optimizer state and restored checkpoints.

    Stock: tp also where it does not divide the heads (K of global layers), norm scales split over tp, an adapter whose
    note is as long as its base's rather than as its own shape.
    """
    for tensor in base_tensors(model) + lora_tensors(model):
        tensor.variable.set_metadata(out_sharding=tuple(spec_of(tensor, topology, mesh)))


def place_model(model: nnx.Module, topology: Topology, mesh: jax.sharding.Mesh, corrections: Corrections = ALL) -> None:
    """Puts every variable on the mesh, each device getting its part only."""
    if corrections.split_by_rule:
        annotate(model, topology, contract_mesh(mesh))
    for _, variable in nnx.to_flat_state(nnx.state(model)):
        variable.set_raw_value(put(variable.get_raw_value(), NamedSharding(mesh, annotated(variable))))


def annotated(variable: nnx.Variable) -> PartitionSpec:
    return PartitionSpec(*(variable.get_metadata("out_sharding", None) or ()))


def put(value, sharding: NamedSharding) -> jax.Array:
    """Every process has the whole value; each of its devices takes its part. One that lies there already stays."""
    if isinstance(value, jax.Array) and value.sharding == sharding:
        return value
    whole = whole_array(value)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def constrain(tree, shardings: tuple[NamedSharding, ...] | None):
    """Inside jit: each leaf where it was told to lie, so that a step's output is the next one's input, compiled once."""
    if shardings is None:
        return tree
    placed = map(jax.lax.with_sharding_constraint, jax.tree.leaves(tree), shardings)
    return jax.tree.unflatten(jax.tree.structure(tree), placed)


def as_annotated(state):
    """Inside jit: variables where their notes say. Gradients are then summed where the adapters lie, not on every device."""
    return state if current_mesh() is None else jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state))


def shardings_of(tree) -> tuple[NamedSharding, ...] | None:
    """Of every leaf, in order; None outside a mesh."""
    return tuple(leaf.sharding for leaf in jax.tree.leaves(tree)) if current_mesh() else None


def row_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
    return NamedSharding(mesh, ROWS_SPEC)


def own_rows(rows: int, mesh: jax.sharding.Mesh | None) -> list[int]:
    """The rows of a micro-batch that this process's devices take; all of them when it is the only process."""
    if mesh is None:
        return list(range(rows))
    check_rows(rows, contract_mesh(mesh))
    slices = row_sharding(mesh).addressable_devices_indices_map((rows,)).values()
    return sorted({row for (part,) in slices for row in range(rows)[part]})


def places_of(rows: int) -> tuple[list[int], int]:
    """(places in the micro-batch of this process's `rows` rows, rows of the whole micro-batch)."""
    mesh = current_mesh()
    whole = rows if mesh is None else rows * _processes_of_rows(mesh)
    return own_rows(whole, mesh), whole


def place_rows(batch: Batch) -> dict[str, jax.Array]:
    """This process's rows of a micro-batch [B,T] as the global arrays of all processes; scalars on every device.

    Stock: rows that the axis does not divide go whole to every device without a word; and a process compares its own rows
    with the whole axis, so that 4 rows for each of two processes on fsdp 8 are taken for replicas.
    """
    mesh = current_mesh()
    if mesh is None:
        return batch
    _, rows = places_of(len(batch["input_tokens"]))
    return {name: _placed(value, rows, mesh) for name, value in batch.items()}


def _placed(value, rows: int, mesh: jax.sharding.Mesh) -> jax.Array:
    if np.ndim(value) == 0:
        return put(value, NamedSharding(mesh, PartitionSpec()))
    return jax.make_array_from_process_local_data(row_sharding(mesh), value, (rows, *value.shape[1:]))


def _processes_of_rows(mesh: jax.sharding.Mesh) -> int:
    """How many times more rows a micro-batch has than this process holds."""
    parts = _parts(ROWS, mesh)
    return parts // len(own_rows(parts, mesh))
