"""The 31B in shapes alone: what each leaf of a training state takes on each device of a mesh, without a byte of memory."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from tunix.models.gemma4 import model as gemma4

from conformance.contract.recipe import Recipe
from conformance.contract.sharding import FSDP, TP, Mesh, fallbacks
from conformance.contract.topology import Topology, topology_of
from tpu_impl.adapter import abstract_adapted, split_kv
from tpu_impl.corrections import ALL
from tpu_impl.layout import HubTensor, base_tensors, lora_tensors
from tpu_impl.model import KINDS
from tpu_impl.optimizer import AdamState, part_of, recipe_chain
from tpu_impl.sharding import abstract_mesh, spec_of

RANK = 64  # of conformance/recipes/gemma4-31b.toml, as published
NAMES = {kind: name for name, kind in KINDS.items()}
MESHES_31B = (Mesh(4, 1), Mesh(1, 4), Mesh(8, 1), Mesh(1, 8))  # v5p-8 has 4 chips, v6e-8 has 8
SLACK, SMALL_BYTES = 1.02, 10**6  # a leaf that takes more than its share of the devices, and is no norm, needs a reason


@dataclass(frozen=True, slots=True)
class AbstractLeaf:
    """Bytes in all, on one device, and `bytes` / devices; `reason` says why a device holds more than that."""

    group: str
    name: str
    bytes: int
    device_bytes: int
    ideal_bytes: int
    reason: str


def config_31b() -> gemma4.ModelConfig:
    """Tunix's own sizes of google/gemma-4-31B, in bfloat16."""
    return dataclasses.replace(gemma4.ModelConfig.gemma4_31b(), dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)


def topology_31b() -> Topology:
    """The contract's view of the same sizes."""
    config = config_31b()
    pattern = [NAMES[config.attention_pattern[index % len(config.attention_pattern)]] for index in range(config.num_layers)]
    return topology_of({
        "hidden_size": config.embed_dim, "intermediate_size": config.hidden_dim, "vocab_size": config.num_embed,
        "sliding_window": config.sliding_window_size, "final_logit_softcapping": config.final_logit_softcap,
        "num_attention_heads": config.num_heads, "head_dim": config.head_dim, "num_key_value_heads": config.num_kv_heads,
        "global_head_dim": config.global_key_size, "num_global_key_value_heads": config.num_global_kv_heads,
        "attention_k_eq_v": config.k_eq_v_global, "layer_types": pattern,
    })  # fmt: skip


def state_31b(recipe: Recipe) -> Iterator[tuple[str, HubTensor, jax.ShapeDtypeStruct]]:
    """(group, tensor, shape and dtype) of every leaf of the training state that is split."""
    recipe = dataclasses.replace(recipe, adapter=dataclasses.replace(recipe.adapter, rank=RANK))
    model = abstract_adapted(nnx.eval_shape(_split_31b), recipe, ALL)
    adapter = lora_tensors(model)
    params = [jax.ShapeDtypeStruct(tensor.variable.shape, jnp.float32) for tensor in adapter]
    state = jax.eval_shape(recipe_chain(recipe, [0.0]).accumulated(recipe.batch.accumulation).init, params)
    adam, accumulated = part_of(state, AdamState), part_of(state, optax.MultiStepsState).acc_grads
    yield from (("weight", tensor, tensor.variable.get_raw_value()) for tensor in base_tensors(model))
    for group, values in (("adapter", params), ("m", adam.m), ("v", adam.v), ("accumulator", accumulated)):
        yield from ((group, tensor, value) for tensor, value in zip(adapter, values, strict=True))


def _split_31b():
    model = gemma4.Gemma4(config_31b(), rngs=nnx.Rngs(0))
    split_kv(model)
    return model


def abstract_leaves(recipe: Recipe) -> Iterator[tuple[Mesh, AbstractLeaf]]:
    topology, leaves = topology_31b(), list(state_31b(recipe))
    for mesh in MESHES_31B:
        placed = abstract_mesh(mesh)
        for group, tensor, value in leaves:
            part = NamedSharding(placed, spec_of(tensor, topology, mesh)).shard_shape(value.shape)
            sizes = [math.prod(shape) * value.dtype.itemsize for shape in (value.shape, part)]
            ideal = sizes[0] // (mesh.fsdp * mesh.tp)
            reason = _reason(tensor.name, topology, mesh) if sizes[1] > max(SLACK * ideal, SMALL_BYTES) else ""
            yield mesh, AbstractLeaf(group, tensor.name, *sizes, ideal, reason)


def _reason(tensor: str, topology: Topology, mesh: Mesh) -> str:
    """Why a leaf of this mesh is not split over all of its devices."""
    found = fallbacks(topology, mesh, (tensor,))
    if found:
        return "; ".join(f"{one.axis} = {one.parts} does not divide {one.size} (dimension {one.dim})" for one in found)
    axis, other = (FSDP, TP) if mesh.fsdp > 1 else (TP, FSDP)
    return f"split over {other} alone, which is 1 here; its other dimension is the rank, which {axis} never splits"
