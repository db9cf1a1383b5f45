"""The adapter of a PEFT folder under the bundle's names, refused where it is not the recipe's."""

import json
from pathlib import Path

import numpy as np

from conformance.contract.checkpoint_files import read_file
from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from conformance.contract.recipe import PROJECTIONS, Recipe
from conformance.contract.topology import Topology, Weight, hub_name

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
# What changes more than B·A at one rank and one alpha; the value that means "off" beside None, False and an empty table.
MORE = ("modules_to_save", "rank_pattern", "alpha_pattern", "use_dora", "trainable_token_indices", "lora_bias", "layer_replication")


def read_adapter(folder: Path, recipe: Recipe, topology: Topology) -> Tensors:
    """float32 `<weight>.lora_A` (r, in) and `<weight>.lora_B` (out, r) of a folder that PEFT saved."""
    _check_config(folder, recipe)
    tensors = {_hub_name(name): np.asarray(value).astype(np.float32) for name, value in read_file(folder / TENSORS).items()}
    weights, rank = {weight.name: weight for weight in topology.adapted(PROJECTIONS)}, recipe.adapter.rank
    for name, value in tensors.items():
        weight, _, side = name.rpartition(".lora_")
        if weight not in weights or side not in ("A", "B"):
            raise ContractError(f"{folder}/{TENSORS}: {name} is no adapter tensor of a weight of the recipe's checkpoint")
        other, expected = f"{weight}.lora_{'B' if side == 'A' else 'A'}", _shape(weights[weight], side, rank)
        if other not in tensors:
            raise ContractError(f"{folder}/{TENSORS}: {name} is there and {other} is not")
        if value.shape != expected:
            raise ContractError(f"{folder}/{TENSORS}: {name} has shape {value.shape}; at the recipe's rank of {rank} it is {expected}")
    if not tensors:
        raise ContractError(f"{folder}/{TENSORS}: no tensor in it")
    return tensors


def _shape(weight: Weight, side: str, rank: int) -> tuple[int, int]:
    return (rank, weight.in_features) if side == "A" else (weight.out_features, rank)


def _check_config(folder: Path, recipe: Recipe) -> None:
    try:
        config = json.loads((folder / CONFIG).read_text())
    except OSError as error:
        raise ContractError(f"{folder}: no {CONFIG} in it: not a folder that PEFT saved") from error
    except json.JSONDecodeError as error:
        raise ContractError(f"{folder}/{CONFIG}: not whole JSON: {error}") from error
    expected = {"r": recipe.adapter.rank, "lora_alpha": recipe.adapter.alpha, "use_rslora": recipe.adapter.rslora}
    for key, value in expected.items():
        if config.get(key, False) != value:
            raise ContractError(f"{folder}/{CONFIG}: {key} = {config.get(key)!r}; the recipe's is {value!r}")
    more = [key for key in MORE if config.get(key)]
    if more or config.get("bias", "none") != "none":
        key = more[0] if more else "bias"
        raise ContractError(f"{folder}/{CONFIG}: {key} = {config[key]!r}: a bundle holds plain LoRA of one rank and one alpha only")


def _hub_name(name: str) -> str:
    """PEFT's name without its own prefix and suffixes; a text-only model's under the hub's prefix."""
    return hub_name(name.removeprefix("base_model.model.").removesuffix(".weight").removesuffix(".default"))
