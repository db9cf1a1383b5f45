"""Tunix's parameter paths and layouts <-> the hub's tensor names and layouts.

Tunix keeps projections as einsum weights: q, k, v [N,D,H], o [N,H,D], the MLP's as kernels [in,out]; the hub has [out,in].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils

from conformance.contract.topology import PREFIX

Path = tuple[str | int, ...]

HEADS = {
    "attn.q_einsum": "self_attn.q_proj",
    "attn.k_einsum": "self_attn.k_proj",  # global layers: K serves as V
    "attn.kv_einsum.k_einsum": "self_attn.k_proj",  # local layers, once split
    "attn.kv_einsum.v_einsum": "self_attn.v_proj",
}
FUSED = "attn.kv_einsum"  # stock: [2,K,D,H], K and V in one
OUTPUT = {"attn.attn_vec_einsum": "self_attn.o_proj"}
KERNELS = {f"mlp.{name}": f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")}
PROJECTIONS = HEADS | OUTPUT | KERNELS
DIMS = dict.fromkeys(HEADS, (0, 1, 0)) | dict.fromkeys(OUTPUT, (1, 1, 0)) | dict.fromkeys(KERNELS, (1, 0)) | {FUSED: (None, 0, 1, 0)}
PLAIN = {
    "pre_attention_norm.scale": "input_layernorm.weight",
    "post_attention_norm.scale": "post_attention_layernorm.weight",
    "pre_ffw_norm.scale": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.scale": "post_feedforward_layernorm.weight",
    "attn._query_norm.scale": "self_attn.q_norm.weight",
    "attn._key_norm.scale": "self_attn.k_norm.weight",
    "skip_scale": "layer_scalar",
}
OUTSIDE = {"embedder.input_embedding": "embed_tokens.weight", "final_norm.scale": "norm.weight"}


@dataclass(frozen=True, slots=True)
class HubTensor:
    """A tensor under its hub name (a LoRA tensor: `<weight>.lora_A`), the variable that holds it, and how it is turned.

    `dims` names, for each dimension of the variable, the hub dimension that it is a part of: (0, 1, 0) for [N,D,H] -> [N*H,D].
    """

    name: str
    variable: nnx.Variable
    turn: Callable
    dims: tuple[int | None, ...]

    def read(self, whole=None) -> np.ndarray:
        """In the hub's layout; `whole` is another value in the variable's structure, such as its gradient. A copy."""
        return np.array(self.turn(whole_array(self.variable[...] if whole is None else whole)))


def whole_array(value) -> np.ndarray:
    """All of an array, the parts that other processes hold too; then every process must ask."""
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return multihost_utils.process_allgather(value, tiled=True)
    return np.asarray(value)


def base_tensors(model: nnx.Module) -> list[HubTensor]:
    """Every base tensor of a Gemma 4, adapted or not, K and V fused or split."""
    return _tensors(model, lambda _, value: isinstance(value, nnx.Param) and not isinstance(value, nnx.LoRAParam), _base)


def lora_tensors(model: nnx.Module) -> list[HubTensor]:
    """Every adapter tensor, in the variables' order. A fused K and V shows as two weights with one A."""
    return _tensors(model, nnx.LoRAParam, lora_names)


def from_hub(variable: nnx.Variable, tensor: np.ndarray) -> np.ndarray:
    """A LoRA tensor in PEFT's layout, A (r, in) or B (out, r), in the variable's."""
    return tensor.T.reshape(variable.shape)


def _tensors(model: nnx.Module, kind, named: Callable) -> list[HubTensor]:
    flat = nnx.to_flat_state(nnx.state(model, kind))
    return [
        HubTensor(name, variable, turn, _dims(path, variable.ndim)) for path, variable in flat for name, turn in named(path)
    ]  # fmt: skip


def projection_of(path: Path) -> str | None:
    """The hub weight that the module at `path` holds, or None."""
    if len(path) < 3 or path[0] != "layers":
        return None
    short = PROJECTIONS.get(".".join(map(str, path[2:])))
    return short and f"{PREFIX}layers.{path[1]}.{short}"


def lora_names(path: Path) -> Iterator[tuple[str, Callable]]:
    """(hub name, turn into PEFT's layout) of the adapter variable at `path`: two weights' of a fused K and V."""
    base, short, leaf = _split(path)
    side = "A" if leaf.endswith("_a") else "B"
    if short == FUSED:
        for index, name in enumerate(("k_proj", "v_proj")):
            yield f"{base}self_attn.{name}.lora_{side}", _fused_turn(side, index)
    else:
        yield f"{base}{PROJECTIONS[short]}.lora_{side}", TURNS[side]


def _base(path: Path) -> Iterator[tuple[str, Callable]]:
    dotted = ".".join(map(str, path))
    if dotted in OUTSIDE:
        yield PREFIX + OUTSIDE[dotted], lambda value: value
        return
    base, short, leaf = _split(path)
    if short == FUSED:
        for index, name in enumerate(("k_proj", "v_proj")):
            yield f"{base}self_attn.{name}.weight", lambda value, index=index: _heads(value[index])
    elif short in PROJECTIONS:
        yield f"{base}{PROJECTIONS[short]}.weight", _turn(short)
    else:
        yield base + PLAIN[".".join(filter(None, (short, leaf)))], lambda value: value


def _split(path: Path) -> tuple[str, str, str]:
    """("model.language_model.layers.3.", "attn.q_einsum", "w")"""
    return f"{PREFIX}layers.{path[1]}.", ".".join(map(str, path[2:-1])), str(path[-1])


def _dims(path: Path, ndim: int) -> tuple[int | None, ...]:
    """Outer dimension first: an axis of a mesh that splits a hub dimension splits the first of its parts."""
    short, leaf = ".".join(map(str, path[2:-1])), str(path[-1])
    if leaf.endswith("_lora_a"):
        return (1,) * (ndim - 1) + (0,)
    if leaf.endswith("_lora_b"):
        return (1, None, 0, 0) if short == FUSED else (1,) + (0,) * (ndim - 1)
    return DIMS.get(short) or tuple(range(ndim))


def _turn(short: str) -> Callable:
    if short in HEADS:
        return _heads
    return (lambda value: value.reshape(-1, value.shape[-1]).T) if short in OUTPUT else (lambda value: value.T)


def _heads(value_NDH):
    """[N,D,H] -> [N*H,D]"""
    return value_NDH.swapaxes(1, 2).reshape(-1, value_NDH.shape[1])


# A in Tunix is [..., r] with the contracted axes first, B is [r, ...] with the output axes last.
TURNS = {"A": lambda value: value.reshape(-1, value.shape[-1]).T, "B": lambda value: value.reshape(value.shape[0], -1).T}


def _fused_turn(side: str, index: int) -> Callable:
    return TURNS["A"] if side == "A" else (lambda value: TURNS["B"](value[:, index]))
