"""The meshes of the *sharding* rung, and by rule the mesh axis that splits each dimension of each tensor.

Tensors stand in the hub's layout: weights (out, in), lora_A (r, in), lora_B (out, r). Moments and the gradient accumulator are
split as the adapter is; rows are split over `data` and `fsdp` together.
"""

import dataclasses
import re
from dataclasses import dataclass

from conformance.contract.errors import ContractError
from conformance.contract.recipe import Batch, Recipe
from conformance.contract.topology import PREFIX, Topology, Weight

ROWS = 8  # of one optimizer step in this rung: a row for every device of the largest mesh
STEPS = 20
TP, FSDP = "tp", "fsdp"
IN_LAYER = re.compile(rf"{re.escape(PREFIX)}layers\.(?P<layer>\d+)\.(?P<target>.+)")
# Megatron's split (column-parallel q, k, v, gate, up; row-parallel o, down), FSDP over the other dimension: (out, in).
SPLIT = {
    "q_proj": (TP, FSDP), "k_proj": (TP, FSDP), "v_proj": (TP, FSDP), "o_proj": (FSDP, TP),
    "gate_proj": (TP, FSDP), "up_proj": (TP, FSDP), "down_proj": (FSDP, TP), "embed_tokens": (TP, FSDP),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mesh:
    """Sizes of the axes: `data` repeats the weights, `fsdp` and `tp` split them."""

    fsdp: int = 1
    tp: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        return self.fsdp * self.tp * self.data

    @property
    def name(self) -> str:
        return f"data={self.data}" if self.data > 1 else f"fsdp={self.fsdp},tp={self.tp}"

    def size(self, axis: str) -> int:
        return {"fsdp": self.fsdp, "tp": self.tp, "data": self.data}[axis]


ONE = Mesh()
MESHES = (ONE, Mesh(8, 1), Mesh(4, 2), Mesh(2, 4), Mesh(2, 2), Mesh(1, 4), Mesh(data=8))  # (1, 4) is the paper's


@dataclass(frozen=True, slots=True)
class Fallback:
    """A dimension that its axis does not divide: it stays whole on every device of that axis."""

    tensor: str
    dim: int
    size: int
    axis: str
    parts: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of a training state (`group`: weight, adapter, m, v, accumulator; or input [rows, tokens]; or stream, an
    activation [rows, tokens, ...] by its own name), as it really lies.

    Shapes in the hub's layout; `axes` names what splits each dimension, None where it is whole.
    """

    group: str
    name: str
    shape: list[int]
    axes: list[str | None]
    device_shape: list[int]


def sharding_recipe(recipe: Recipe) -> Recipe:
    """The recipe with one row a shard and 8 shards: every mesh gives each of its row shards as many rows."""
    return dataclasses.replace(recipe, batch=Batch(micro_batch=1, accumulation=1, shards=ROWS))


def split_axes(tensor: str, topology: Topology, mesh: Mesh) -> tuple[str | None, ...]:
    """The axis that splits each dimension of a hub tensor (`….weight`) or of an adapter's (`….lora_A`, `….lora_B`); None: whole."""
    return tuple(axis if _divides(size, axis, mesh) else None for axis, size in _asked(tensor, topology))


def fallbacks(topology: Topology, mesh: Mesh, tensors: tuple[str, ...]) -> tuple[Fallback, ...]:
    """Every dimension of `tensors` that stays whole because its axis does not divide it."""
    return tuple(
        Fallback(tensor, dim, size, axis, mesh.size(axis))
        for tensor in tensors
        for dim, (axis, size) in enumerate(_asked(tensor, topology))
        if axis and mesh.size(axis) > 1 and not _divides(size, axis, mesh)
    )


def stream_share(shape: list[int], mesh: Mesh) -> list[int]:
    """A device's share of an activation [rows, tokens, features] or [rows, tokens, heads, features].

    Rows over data and fsdp together, features or heads over tp where it divides them.
    """
    rows, tokens, third, *rest = shape
    return [rows // (mesh.data * mesh.fsdp), tokens, third // (1 if third % mesh.tp else mesh.tp), *rest]


def check_rows(rows: int, mesh: Mesh) -> None:
    """Rows have no fallback: a shard with fewer rows than another would weigh its rows more."""
    parts = mesh.data * mesh.fsdp
    if rows % parts:
        raise ContractError(f"a micro-batch of {rows} rows cannot be split over {parts} devices (data x fsdp) of mesh {mesh.name}")


def _asked(tensor: str, topology: Topology) -> tuple[tuple[str | None, int], ...]:
    """(axis asked for, number of pieces that it may be cut into) of each dimension. Heads are never cut."""
    name, leaf = tensor.rsplit(".", 1)
    weight = _weight(name, topology)
    out, inner = SPLIT.get(name.rsplit(".", 1)[-1], (None, None))
    if weight is None:
        shape = topology.tensors[tensor]
        return tuple(zip((out, inner) if len(shape) == 2 else (None,) * len(shape), shape, strict=True))
    sizes = _pieces(weight, out, inner)
    rank = (None, 0)
    return {"lora_A": (rank, (inner, sizes[1])), "lora_B": ((out, sizes[0]), rank)}.get(leaf, ((out, sizes[0]), (inner, sizes[1])))


def _pieces(weight: Weight, out: str | None, inner: str | None) -> tuple[int, int]:
    """(out, in): the number of heads where the axis is tp in attention, else the features."""
    heads = weight.heads
    return (heads if heads and out == TP else weight.out_features, heads if heads and inner == TP else weight.in_features)


def _divides(size: int, axis: str | None, mesh: Mesh) -> bool:
    return axis is not None and mesh.size(axis) > 1 and size % mesh.size(axis) == 0


def _weight(name: str, topology: Topology) -> Weight | None:
    """The projection of that hub name; None for embeddings, norms and scalars."""
    found = IN_LAYER.fullmatch(name)
    return topology.layers[int(found["layer"])].targets.get(found["target"]) if found else None
