"""The LoRA adapter: attaching it by recipe, its tensors under the bundle's names, its own initialiser, PEFT's folder."""

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

from conformance.contract.digest import sha256_array
from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe
from conformance.contract.topology import Topology, Weight, read_topology
from reference.model import to_numpy, whole
from reference.processes import process_index

MODEL_PREFIX = "base_model.model."  # what PEFT puts before the hub's names
ADAPTER_SUFFIX = ".default"  # PEFT's name of the only adapter
ALPHA_CONTROL = 1.01


def lora_config(recipe: Recipe, dropout: float | None = None) -> LoraConfig:
    """The recipe's adapter for PEFT. A pattern, not bare names: those would also match a vision tower's projections."""
    targets = "|".join(recipe.adapter.targets)
    return LoraConfig(
        r=recipe.adapter.rank,
        lora_alpha=recipe.adapter.alpha,
        lora_dropout=recipe.adapter.dropout if dropout is None else dropout,
        use_rslora=recipe.adapter.rslora,
        init_lora_weights=True,  # kaiming_uniform(a = sqrt 5) for A, zeros for B
        target_modules=rf"model\.language_model\.layers\.\d+\.(self_attn|mlp)\.({targets})",
        task_type="CAUSAL_LM",
    )


def attach_adapter(model, recipe: Recipe, dropout: float | None = None) -> PeftModel:
    """Wraps `model`; refuses when PEFT adapts another set of weights than the contract expects."""
    if recipe.adapter.init != "kaiming_uniform":
        raise ContractError(f"adapter.init = {recipe.adapter.init!r}: PEFT has kaiming_uniform only")
    wrapped = get_peft_model(model, lora_config(recipe, dropout))
    expected = {weight.name for weight in read_topology(recipe.checkpoint_dir).adapted(recipe.adapter.targets)}
    odd = sorted(expected ^ set(lora_layers(wrapped)))
    if odd:
        raise ContractError(f"PEFT and the contract disagree on {odd[0]} ({len(odd)} weights in all)")
    return wrapped


def lora_layers(model: torch.nn.Module) -> dict[str, LoraLayer]:
    """The adapted modules by weight name."""
    return {
        name.removeprefix(MODEL_PREFIX): module for name, module in model.named_modules() if isinstance(module, LoraLayer)
    }


def adapter_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trainable tensors under `<weight>.lora_A` (r, in) and `<weight>.lora_B` (out, r)."""
    return {tensor_name(name): value for name, value in model.named_parameters() if ".lora_" in name}


def tensor_name(parameter: str) -> str:
    return parameter.removeprefix(MODEL_PREFIX).removesuffix(".weight").removesuffix(ADAPTER_SUFFIX)


def get_adapter(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: to_numpy(value) for name, value in adapter_parameters(model).items()}


def set_adapter(model: torch.nn.Module, tensors: dict[str, np.ndarray]) -> None:
    """Copies every adapter tensor; a missing, unknown or misshaped one is refused by name."""
    parameters = adapter_parameters(model)
    odd = sorted(set(parameters) ^ set(tensors))
    odd = odd or sorted(name for name in parameters if tuple(parameters[name].shape) != tensors[name].shape)
    if odd:
        raise ContractError(f"adapter tensor {odd[0]} is missing, unknown or of another shape ({len(odd)} in all)")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(tensors[name])))


@dataclass(frozen=True, slots=True)
class InitStatistics:
    """One weight's adapter as PEFT starts it: spread of A, largest |B| (0), digest of A."""

    weight: str
    seed: int
    std: float
    max_abs: float
    fan_in: int
    b_max_abs: float
    sha256: str


def own_init(model, recipe: Recipe, seed: int) -> list[InitStatistics]:
    """Draws PEFT's initial adapter anew under `seed` (TRL seeds just before it wraps the model)."""
    torch.manual_seed(seed)
    for layer in lora_layers(model).values():
        layer.reset_lora_parameters("default", True)
    tensors, statistics = get_adapter(model), []
    for weight in lora_layers(model):
        a, b = tensors[f"{weight}.lora_A"], tensors[f"{weight}.lora_B"]
        spread = (float(a.std(dtype=np.float64)), float(np.abs(a).max()), a.shape[1], float(np.abs(b).max()))
        statistics.append(InitStatistics(weight, seed, *spread, sha256_array(a)))
    return statistics


def measured_scale(layer: LoraLayer) -> float:
    """The factor of B·A that the module really applies: least squares of its output over B(A(x))."""
    x = torch.randn(8, layer.in_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        applied = (layer(x) - layer.base_layer(x)).double()
        plain = layer.lora_B["default"](layer.lora_A["default"](x)).double()
    return float((applied * plain).sum() / plain.square().sum())


def scaled(recipe: Recipe, *, alpha: float = 1.0, rslora: bool | None = None) -> Recipe:
    """The recipe with alpha times a factor, or rank-stabilised: controls of the scale."""
    changed = {"alpha": recipe.adapter.alpha * alpha, "rslora": recipe.adapter.rslora if rslora is None else rslora}
    return dataclasses.replace(recipe, adapter=dataclasses.replace(recipe.adapter, **changed))


def save_adapter(model: PeftModel, folder: Path) -> None:
    """PEFT's own folder: adapter_config.json and adapter_model.safetensors. Shards are gathered; one process writes."""
    tensors = {name: whole(value) for name, value in model.state_dict().items() if ".lora_" in name}
    if process_index() == 0:
        model.save_pretrained(str(folder), state_dict=tensors, save_embedding_layers=False)


def load_adapter(model, folder: Path) -> PeftModel:
    """A base model with the adapter of a PEFT folder; a tensor that PEFT would leave at its start value is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Found missing adapter keys")
        return PeftModel.from_pretrained(model, str(folder)).eval()


def adapted(topology: Topology, recipe: Recipe) -> tuple[Weight, ...]:
    return topology.adapted(recipe.adapter.targets)
