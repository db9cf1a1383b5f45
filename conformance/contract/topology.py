"""The shape of a Gemma 4 checkpoint, read from its config.json alone: layers, adapted weights, every tensor's name and shape."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.errors import ContractError

PREFIX = "model.language_model."


def hub_name(name: str) -> str:
    """`model.layers.…` (a text-only export) under the hub's `model.language_model.layers.…`."""
    return name if name.startswith(PREFIX) else re.sub(r"^model\.", PREFIX, name)


@dataclass(frozen=True, slots=True)
class Weight:
    """An adapted weight: hub name without `.weight`, HF layout (out_features, in_features); `heads` 0 outside attention."""

    name: str
    layer: int
    layer_type: str
    out_features: int
    in_features: int
    heads: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; `targets` maps `self_attn.q_proj` and so on to its weights (no v_proj where K serves as V)."""

    index: int
    kind: str
    targets: dict[str, Weight]


@dataclass(frozen=True, slots=True)
class Topology:
    """Sizes in elements; `tensors` maps every hub tensor name of the language model to its shape."""

    hidden: int
    intermediate: int
    vocabulary: int
    window: int
    softcap: float | None
    layers: tuple[Layer, ...]
    tensors: dict[str, tuple[int, ...]]

    def adapted(self, targets: tuple[str, ...]) -> tuple[Weight, ...]:
        """The weights that a recipe's targets adapt, in layer order."""
        return tuple(weight for layer in self.layers for name, weight in layer.targets.items() if name.split(".")[-1] in targets)


def read_topology(checkpoint: Path) -> Topology:
    """From `checkpoint/config.json` (Gemma4ForConditionalGeneration or Gemma4ForCausalLM)."""
    path = Path(checkpoint) / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ContractError(f"checkpoint {checkpoint}: no config.json in it") from error
    except json.JSONDecodeError as error:
        raise ContractError(f"{path}: not JSON: {error}") from error
    text = config.get("text_config", config)
    if not str(text.get("model_type", "")).startswith("gemma4"):
        raise ContractError(f"{path}: model_type = {text.get('model_type')!r} is not a Gemma 4 text model")
    return topology_of(text)


def topology_of(text: dict) -> Topology:
    """From a text_config."""
    layers = tuple(_layer(text, index, kind) for index, kind in enumerate(text["layer_types"]))
    tensors = {
        f"{PREFIX}embed_tokens.weight": (text["vocab_size"], text["hidden_size"]),
        f"{PREFIX}norm.weight": (text["hidden_size"],),
    }
    for layer in layers:
        tensors |= _layer_tensors(text, layer)
    return Topology(
        hidden=text["hidden_size"],
        intermediate=text["intermediate_size"],
        vocabulary=text["vocab_size"],
        window=text["sliding_window"],
        softcap=text.get("final_logit_softcapping"),
        layers=layers,
        tensors=tensors,
    )


def head_sizes(text: dict, kind: str) -> tuple[int, int, bool]:
    """(head size, KV heads, K serves as V) of a layer kind; global layers have their own (transformers' Gemma4TextAttention)."""
    if kind == "full_attention":
        k_eq_v = bool(text.get("attention_k_eq_v"))
        kv_heads = text.get("num_global_key_value_heads") if k_eq_v else None
        return text["global_head_dim"], kv_heads or text["num_key_value_heads"], k_eq_v
    return text["head_dim"], text["num_key_value_heads"], False


def _layer(text: dict, index: int, kind: str) -> Layer:
    head, kv_heads, k_eq_v = head_sizes(text, kind)
    hidden, inner, q_out = text["hidden_size"], text["intermediate_size"], text["num_attention_heads"] * head
    sizes = {
        "self_attn.q_proj": (q_out, hidden),
        "self_attn.k_proj": (kv_heads * head, hidden),
        "self_attn.v_proj": (kv_heads * head, hidden),
        "self_attn.o_proj": (hidden, q_out),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    if k_eq_v:
        del sizes["self_attn.v_proj"]
    heads = dict.fromkeys(("self_attn.q_proj", "self_attn.o_proj"), text["num_attention_heads"])
    heads |= dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), kv_heads)
    base = f"{PREFIX}layers.{index}."
    return Layer(index, kind, {name: Weight(base + name, index, kind, *size, heads.get(name, 0)) for name, size in sizes.items()})


def _layer_tensors(text: dict, layer: Layer) -> dict[str, tuple[int, ...]]:
    head, hidden, base = head_sizes(text, layer.kind)[0], text["hidden_size"], f"{PREFIX}layers.{layer.index}."
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    tensors = {f"{weight.name}.weight": (weight.out_features, weight.in_features) for weight in layer.targets.values()}
    tensors |= {f"{base}{norm}.weight": (hidden,) for norm in norms}
    tensors |= {f"{base}self_attn.{norm}.weight": (head,) for norm in ("q_norm", "k_norm")}
    return tensors | {f"{base}layer_scalar": (1,)}
