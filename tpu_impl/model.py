"""The model: loading, refusing and exporting a checkpoint under hub names, in Tunix's Gemma 4."""

import dataclasses
import json
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.models import safetensors_loader
from tunix.models.gemma4 import model as gemma4
from tunix.models.gemma4 import params_safetensors

from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.errors import ContractError
from conformance.contract.topology import Topology, head_sizes, hub_name, read_topology
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.layout import base_tensors
from tpu_impl.taps import watch

DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}
CHECKPOINT_PRECISION = {"float32": "f32", "bfloat16": "bf16"}  # the recipe's name of a checkpoint's dtype -> precision
LEFT_OUT = {
    "model.vision_tower.": "vision tower: the recipe trains text only",
    "model.embed_vision.": "vision embedder: the recipe trains text only",
    "model.audio_tower.": "audio tower: the recipe trains text only",
    "model.embed_audio.": "audio embedder: the recipe trains text only",
}
# What Tunix's Gemma 4 has built in: another value in config.json would be ignored without a word.
BUILT_IN = {
    "rms_norm_eps": 1e-6, "attention_bias": False, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "enable_moe_block": False,
}  # fmt: skip
KINDS = {"sliding_attention": gemma4.AttentionType.LOCAL_SLIDING, "full_attention": gemma4.AttentionType.GLOBAL}
STOCK_PREFIX = r"(?:model\.language_model\.)?"
ANY_PREFIX = r"(?:model\.(?:language_model\.)?)?"


def left_out(names) -> dict[str, str]:
    """The checkpoint's tensors that no stack takes, with the reason."""
    return {name: why for name in names for prefix, why in LEFT_OUT.items() if name.startswith(prefix)}


def check_tensors(folder: Path, topology: Topology) -> None:
    """Refuses a missing, extra, misshaped or oddly typed tensor by name. Stock: Tunix skips what it does not know with a log
    line, reads all tensors of a file by the first one's item size, and checks shapes by `assert` after reshaping."""
    tensors = read_tensors(folder)
    found = {hub_name(name): value for name, value in tensors.items() if name not in left_out(tensors)}
    for name, shape in topology.tensors.items():
        if name not in found:
            raise ContractError(f"checkpoint {folder}: tensor {name} is missing")
        if found[name].shape != tuple(shape):
            raise ContractError(f"checkpoint {folder}: tensor {name} has shape {found[name].shape}, not {tuple(shape)}")
    extra = sorted(set(found) - set(topology.tensors))
    if extra:
        raise ContractError(f"checkpoint {folder}: tensor {extra[0]} is not one of a model of this config")
    _check_dtypes(folder, found)


def _check_dtypes(folder: Path, found: dict[str, np.ndarray]) -> None:
    common = next(iter(found.values())).dtype
    for name, value in found.items():
        if value.dtype != common:
            raise ContractError(f"checkpoint {folder}: tensor {name} is {value.dtype.name}, the others {common.name}; Tunix needs one")


class Config(gemma4.ModelConfig):
    """Tunix's config, hashable by value, so that a jitted function knows a model that it has compiled for. Never changed in place."""

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))


def read_config(folder: Path, precision: str) -> Config:
    """Tunix's config from config.json, every size and constant of it."""
    config = json.loads((Path(folder) / "config.json").read_text())
    text = config.get("text_config", config)
    for key, only in BUILT_IN.items():
        if (text.get(key) or only) != only:
            raise ContractError(f"{folder}/config.json: {key} = {text[key]!r}; Tunix's Gemma 4 has {only!r} built in")
    rope = text["rope_parameters"]
    head, kv_heads, k_eq_v = head_sizes(text, "full_attention")
    return Config(
        num_layers=text["num_hidden_layers"], num_embed=text["vocab_size"], embed_dim=text["hidden_size"],
        hidden_dim=text["intermediate_size"], num_heads=text["num_attention_heads"], head_dim=text["head_dim"],
        num_kv_heads=text["num_key_value_heads"], num_global_kv_heads=kv_heads, global_key_size=head, k_eq_v_global=k_eq_v,
        sliding_window_size=text["sliding_window"], final_logit_softcap=text["final_logit_softcapping"],
        attention_pattern=tuple(KINDS[kind] for kind in text["layer_types"]),
        local_base_frequency=rope["sliding_attention"]["rope_theta"], global_base_frequency=rope["full_attention"]["rope_theta"],
        global_rope_proportion=rope["full_attention"].get("partial_rotary_factor", 1.0),
        dtype=DTYPES[precision], param_dtype=DTYPES[precision],
    )  # fmt: skip


def load_checkpoint(folder: Path, precision: str = "f32", corrections: Corrections = ALL) -> gemma4.Gemma4:
    """The checkpoint with every weight in `precision` ("f32", "bf16"), under either name prefix."""
    check_tensors(folder, read_topology(folder))
    config = read_config(folder, precision)
    # Stock: every tensor goes to the first of all devices, which in a second process is another process's.
    with mock.patch.object(jax, "devices", jax.local_devices):
        model = safetensors_loader.load_and_create_model(
            file_dir=str(folder), model_class=gemma4.Gemma4, config=config,
            key_mapping=lambda config: _key_mapping(config, corrections),
            preprocess_fn=params_safetensors._make_preprocess_fn(config), dtype=DTYPES[precision],
        )  # fmt: skip
    # Tunix pins each array to a device. jit compiles a program of its own for pinned inputs, and its outputs are pinned too.
    nnx.update(model, jax.tree.map(lambda value: jnp.asarray(np.asarray(value)), nnx.state(model)))
    return watch(hashable(model))


def hashable(model: gemma4.Gemma4) -> gemma4.Gemma4:
    """Tunix keeps two constants of the graph in a list and a set, which no cache of compiled functions can look up."""
    model.kv_cache_sharing_patterns = tuple(model.kv_cache_sharing_patterns)
    model.shared_layer_origins = frozenset(model.shared_layer_origins)
    return model


def _key_mapping(config: gemma4.ModelConfig, corrections: Corrections) -> dict:
    """Tunix's own mapping. Stock: names under `model.` alone match nothing and are skipped."""
    mapping = params_safetensors._get_key_and_transform_mapping(config)
    prefix = ANY_PREFIX if corrections.both_prefixes else STOCK_PREFIX
    return {pattern.replace(STOCK_PREFIX, prefix): rule for pattern, rule in mapping.items()}


def logits_of(model, tokens_BT, attended_BT, positions_BT, corrections: Corrections = ALL) -> jax.Array:
    """Logits [B,T,V] of right-, left- or unpadded rows, causal, padding masked.

    Stock: Tunix caps and returns float32 logits whatever the stream's dtype; the recipe's loss sees the stream's.
    """
    causal_TT = jnp.tril(jnp.ones((tokens_BT.shape[1],) * 2, jnp.bool_))
    logits_BTV, _ = model(tokens_BT, positions_BT, None, causal_TT[None] & attended_BT[:, None, :])
    return logits_BTV.astype(model.config.dtype) if corrections.logits_dtype else logits_BTV


def export_weights(model) -> dict[str, np.ndarray]:
    """Every tensor of the language model under its hub name and in its hub layout, adapters left aside."""
    return {tensor.name: tensor.read() for tensor in base_tensors(model)}
