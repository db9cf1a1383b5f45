"""Where the leaves of a training state really lie, read back from the arrays, in the hub's names and layouts."""

import functools
from dataclasses import dataclass

import jax
import numpy as np
import optax
from flax import nnx

from conformance.contract.sharding import Leaf
from tpu_impl.layout import HubTensor, base_tensors, lora_tensors
from tpu_impl.model import logits_of
from tpu_impl.optimizer import AdamState, part_of
from tpu_impl.sharding import ROWS
from tpu_impl.taps import listen

Axes = list[str | None]


def leaves_of(trainer) -> list[Leaf]:
    """Weights, adapter, both moments and the accumulator of a trainer on a mesh."""
    adapter, adam = lora_tensors(trainer.model), part_of(trainer.optimizer.opt_state, AdamState)
    found = [leaf("weight", tensor, tensor.variable.get_raw_value()) for tensor in base_tensors(trainer.model)]
    found += [leaf("adapter", tensor, tensor.variable.get_raw_value()) for tensor in adapter]
    accumulated = part_of(trainer.optimizer.opt_state, optax.MultiStepsState).acc_grads
    for group, state in (("m", adam.m), ("v", adam.v), ("accumulator", accumulated)):
        found += [leaf(group, tensor, value) for tensor, value in zip(adapter, jax.tree.leaves(state), strict=True)]
    return found


def leaf(group: str, tensor: HubTensor, value: jax.Array) -> Leaf:
    """What one device really holds of `value`, which has the structure of the tensor's variable."""
    shapes = [jax.eval_shape(tensor.turn, jax.ShapeDtypeStruct(shape, value.dtype)).shape for shape in (value.shape, part_shape(value))]
    split = split_of(value)
    axes = [joined(name for dim, name in zip(tensor.dims, split, strict=True) if dim == hub) for hub in range(len(shapes[0]))]
    return Leaf(group, tensor.name, list(shapes[0]), axes, list(shapes[1]))


def part_shape(value: jax.Array) -> tuple[int, ...]:
    """The shape of what a device holds; all hold as much."""
    return value.addressable_shards[0].data.shape


def split_of(value: jax.Array) -> Axes:
    """For each dimension the mesh axes of more than one device that split it, `+` between them, or None."""
    spec, sizes = value.sharding.spec, value.sharding.mesh.shape
    padded = [*spec, *(None,) * (value.ndim - len(spec))]
    named = [[axes] if isinstance(axes, str) else list(axes or ()) for axes in padded]
    return [joined(axis for axis in axes if sizes[axis] > 1) for axes in named]


def joined(names) -> str | None:
    return "+".join(name for name in names if name) or None


def input_leaves(batch: dict[str, jax.Array]) -> list[Leaf]:
    arrays = {name: value for name, value in batch.items() if value.ndim == len(ROWS)}
    return [Leaf("input", name, list(value.shape), split_of(value), list(part_shape(value))) for name, value in arrays.items()]


def stream_leaves(model, batch: dict[str, jax.Array]) -> list[Leaf]:
    """Residual stream before and after each layer, keys and logits of a forward pass, where the compiler leaves them."""
    graphdef, state = nnx.split(model)
    streams = _streams(graphdef, state, *(batch[name] for name in ("input_tokens", "attended", "positions")))
    found = [(f"{name}.{index}", value) for name, values in streams.items() for index, value in enumerate(values)]
    return [Leaf("stream", name, list(value.shape), split_of(value), list(part_shape(value))) for name, value in found]


@functools.partial(jax.jit, static_argnums=0)
def _streams(graphdef, state, ids_BT, attended_BT, positions_BT) -> dict[str, list[jax.Array]]:
    with listen() as heard:
        logits_BTV = logits_of(nnx.merge(graphdef, state), ids_BT, attended_BT, positions_BT)
    return {"residual": heard["hidden"], "keys": heard["keys"], "logits": [logits_BTV]}


@dataclass(frozen=True, slots=True)
class RowShards:
    """Row numbers by row shard of this process's devices, first rows first; their attended and their loss tokens."""

    shard_rows: list[list[int]]
    tokens: int
    loss_tokens: int


def row_shards(batch: dict[str, jax.Array], row_of: dict[bytes, int]) -> RowShards:
    ids, attended, weights = (_by_place(batch[name]) for name in ("input_tokens", "attended", "loss_weight"))
    rows = [[row_of[row[seen].tobytes()] for row, seen in zip(ids[at], attended[at], strict=True)] for at in sorted(ids)]
    return RowShards(rows, *(sum(int((part[at] > 0).sum()) for at in part) for part in (attended, weights)))


def _by_place(value: jax.Array) -> dict[int, np.ndarray]:
    """What this process's devices hold, by first row; devices along tp hold the same."""
    return {shard.index[0].start or 0: np.asarray(shard.data) for shard in value.addressable_shards}
