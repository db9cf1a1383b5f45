"""The model: loading, refusing and exporting a checkpoint under hub names."""

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, Gemma4ForConditionalGeneration

from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.errors import ContractError
from conformance.contract.topology import PREFIX, Topology, hub_name, read_topology
from reference.oracle import use_float64_constants

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
CHECKPOINT_PRECISION = {"bfloat16": "bf16", "float32": "f32"}  # recipe.model.dtype -> precision
LEFT_OUT = {
    "model.vision_tower.": "vision tower: the recipe trains text only",
    "model.embed_vision.": "vision embedder: the recipe trains text only",
    "model.audio_tower.": "audio tower: the recipe trains text only",
    "model.embed_audio.": "audio embedder: the recipe trains text only",
}


def left_out(names) -> dict[str, str]:
    """The checkpoint's tensors that no stack takes, with the reason."""
    return {name: why for name in names for prefix, why in LEFT_OUT.items() if name.startswith(prefix)}


def check_tensors(folder: Path, topology: Topology) -> None:
    """Refuses a checkpoint with a missing, extra or misshaped tensor: transformers would start it at random, or skip it."""
    tensors = read_tensors(folder)
    outside = left_out(tensors)
    found = {hub_name(name): value.shape for name, value in tensors.items() if name not in outside}
    for name, shape in topology.tensors.items():
        if name not in found:
            raise ContractError(f"checkpoint {folder}: tensor {name} is missing")
        if found[name] != tuple(shape):
            raise ContractError(f"checkpoint {folder}: tensor {name} has shape {found[name]}, not {tuple(shape)}")
    extra = sorted(set(found) - set(topology.tensors))
    if extra:
        raise ContractError(f"checkpoint {folder}: tensor {extra[0]} is not one of a model of this config")


def load_checkpoint(folder: Path, precision: str = "f32", attention: str = "eager") -> Gemma4ForConditionalGeneration:
    """The checkpoint with every weight in `precision` ("f32", "bf16", "f64"), under either name prefix."""
    check_tensors(folder, read_topology(folder))
    config = AutoConfig.from_pretrained(folder)
    for name in ("image_token_id", "video_token_id", "audio_token_id"):
        # A text-only config has None here, and `ids == None` is a bool where the model wants a mask.
        setattr(config, name, -1 if getattr(config, name) is None else getattr(config, name))
    model = Gemma4ForConditionalGeneration.from_pretrained(
        folder, config=config, dtype=DTYPES[precision], attn_implementation=attention,
        key_mapping={r"^model\.(?!language_model\.|vision_|audio_|embed_(vision|audio))": PREFIX},
    )  # fmt: skip
    if precision == "f64":
        use_float64_constants(model.model.language_model)
    order_buffers(model)
    return model.eval()


def order_buffers(model: torch.nn.Module) -> None:
    """Puts the buffers of each module into the order of their names, so that every process has the same.

    Stock: transformers registers RoPE's frequencies in the order of `set(config.layer_types)` (Gemma4TextRotaryEmbedding.__init__;
    Gemma 3 and 3n too), which follows PYTHONHASHSEED. Whoever sends buffers by their place, as DDP does, and FSDP1 with
    sync_module_states, gives another process the global layers' frequencies for its sliding layers.
    """
    for module in model.modules():
        ordered = sorted(module._buffers.items())
        module._buffers.clear()
        module._buffers.update(ordered)


def language_model(model: torch.nn.Module) -> torch.nn.Module:
    """The decoder of a plain or PEFT-wrapped model."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return base.model.language_model


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a sharded one gathered from every process: they must all ask for it, in one order."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A copy of the whole tensor, bit for bit; numpy has no bfloat16 of its own."""
    tensor = whole(tensor).cpu().clone()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor of the language model under its hub name, adapters left aside; shards where it is sharded."""
    state = language_model(model).state_dict()
    names = {name: name.replace(".base_layer.", ".") for name in state if ".lora_" not in name}
    return {PREFIX + hub: state[name] for name, hub in names.items()}


def each_weight(model: torch.nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """The weights one after another: whole copies of a sharded model's would not fit beside it."""
    for name, tensor in weights_of(model).items():
        yield name, to_numpy(tensor)


def export_weights(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return dict(each_weight(model))
