"""A checkpoint that was saved on one mesh, restored on others by the trainer's own path (Tunix's manager, Orbax)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from conformance.contract.sharding import Mesh
from tpu_impl.layout import lora_tensors
from tpu_impl.sharding import on_mesh, spec_of

SAVED = Mesh(4, 2)
RESTORED = (Mesh(2, 2), Mesh(), Mesh(2, 4))


@dataclass(frozen=True, slots=True)
class Restore:
    """`leaves` arrays of a trainer, saved on one mesh and restored on another: the same bits, each where this mesh wants it."""

    saved: str
    restored: str
    leaves: int
    equal: bool
    as_asked: bool


def restores(run, trainer, out: Path) -> Iterator[Restore]:
    """`run` (mesh_run.MeshRun) has trained `trainer` and saved it in `out`; every other mesh starts from another adapter."""
    saved = [np.asarray(value) for value in _values(trainer)]
    for mesh in RESTORED:
        other = type(run)(run.session, mesh)
        with on_mesh(other.placed):
            restored = other.start(run.session.warm.adapter, run.saving, out)
            values = _values(restored)
        equal = all(np.array_equal(a, np.asarray(b)) for a, b in zip(saved, values, strict=True))
        pairs = zip(values, _asked(other, restored), strict=True)
        asked = all(value.sharding.is_equivalent_to(sharding, value.ndim) for value, sharding in pairs)
        yield Restore(run.mesh.name, mesh.name, len(values), equal, asked)


def _state(trainer) -> nnx.State:
    return nnx.state((trainer.model, trainer.optimizer), nnx.Any(nnx.LoRAParam, nnx.optimizer.OptState))


def _values(trainer) -> list[jax.Array]:
    """Adapter, moments, accumulator, counters: all that a checkpoint holds."""
    return [variable.get_raw_value() for _, variable in nnx.to_flat_state(_state(trainer))]


def _asked(run, trainer) -> list[NamedSharding]:
    """By the contract's rule; moments and accumulator as the adapter at the end of their path, counters on every device."""
    paths = [path for path, _ in nnx.to_flat_state(nnx.state(trainer.model, nnx.LoRAParam))]
    specs = [spec_of(tensor, run.session.plan.topology, run.mesh) for tensor in lora_tensors(trainer.model)]
    rule = dict(zip(paths, specs, strict=True))
    specs = [_spec(path, rule) for path, _ in nnx.to_flat_state(_state(trainer))]
    return [NamedSharding(run.placed, spec) for spec in specs]


def _spec(path: tuple, rule: dict[tuple, PartitionSpec]) -> PartitionSpec:
    return next((spec for end, spec in rule.items() if path[-len(end) :] == end), PartitionSpec())
