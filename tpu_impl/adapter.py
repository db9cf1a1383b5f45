"""The LoRA adapter: attaching it by recipe, its tensors under the bundle's names, its own initialiser, PEFT's folder."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import qwix
from flax import nnx
from jax._src.interpreters import partial_eval
from tunix.models.gemma4 import model as gemma4

from conformance.contract.checkpoint_files import read_file, write_file
from conformance.contract.digest import sha256_array
from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe
from conformance.contract.topology import Topology, Weight, read_topology
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.layout import FUSED, PROJECTIONS, from_hub, lora_tensors, projection_of
from tpu_impl.lora import CountedKeys, provider
from tpu_impl.taps import watch_projections

ALPHA_CONTROL = 1.01  # a wrong alpha that no limit may let pass
MODEL_PREFIX = "base_model.model."  # what PEFT puts before the hub's names
REMAT = {"none": gemma4.RematConfig.NONE, "block": gemma4.RematConfig.BLOCK, "decoder": gemma4.RematConfig.DECODER}


class SplitKV(nnx.Module):
    """K and V of a local layer as two projections, each [K,D,H]. Stock: one `kv_einsum`, to which Qwix gives one shared A."""

    def __init__(self, fused: gemma4.Einsum, config: gemma4.ModelConfig):
        self.k_einsum, self.v_einsum = (_one_of(fused, index, config) for index in range(2))

    def __call__(self, x_BSD):
        return self.k_einsum(x_BSD), self.v_einsum(x_BSD)


def _one_of(fused: gemma4.Einsum, index: int, config: gemma4.ModelConfig) -> gemma4.Einsum:
    weight_KDH = fused.w[...][index]
    dtypes = {"dtype": config.dtype, "param_dtype": config.param_dtype, "sharding": config.shd_config.q_weight_ndh}
    einsum = nnx.eval_shape(lambda: gemma4.Einsum("BSD,KDH->BSKH", weight_KDH.shape, rngs=nnx.Rngs(0), **dtypes))
    nnx.update(einsum, {"w": weight_KDH})
    return einsum


def module_path(recipe: Recipe) -> str:
    """The pattern of module paths that Qwix adapts, as wide as the recipe's targets and no wider."""
    names = [short for short, hub in PROJECTIONS.items() if hub.split(".")[-1] in recipe.adapter.targets]
    names += [FUSED] if {"k_proj", "v_proj"} & set(recipe.adapter.targets) else []
    return rf"layers/\d+/({'|'.join(name.replace('.', '/') for name in names)})"


def attach_adapter(model: gemma4.Gemma4, recipe: Recipe, remat: str = "none", corrections: Corrections = ALL):
    """Adapts `model` in Qwix's way; refuses when Qwix adapts another set of weights than the contract expects.

    Stock: a path that matches nothing raises nothing, and the trainer then trains every parameter; so does
    rematerialisation that is on while Qwix looks for the weights.
    """
    if corrections.split_kv:
        split_kv(model)
    if not corrections.remat_after_lora:
        set_remat(model, remat)
    adapted = abstract_adapted(model, recipe, corrections)
    nnx.update(adapted, nnx.state(model))
    _start_at_zero(adapted, corrections)
    check_adapted(adapted, recipe)
    watch_projections(adapted)
    set_remat(adapted, remat)
    return adapted


def split_kv(model: gemma4.Gemma4) -> None:
    for layer in model.layers:
        if isinstance(getattr(layer.attn, "kv_einsum", None), gemma4.Einsum):
            layer.attn.kv_einsum = SplitKV(layer.attn.kv_einsum, model.config)


def abstract_adapted(model, recipe: Recipe, corrections: Corrections):
    """The adapted model in shapes alone. Qwix finds the weights by running the model (or bench) once."""
    # Qwix asks each tracer for its sharding, and JAX answers with an error text whose cost grows with the layers: minutes at 60.
    with mock.patch.object(partial_eval.DynamicJaxprTracer, "_origin_msg", lambda tracer: ""):
        return nnx.eval_shape(lambda model: _apply(model, recipe, corrections), model)


def _apply(model, recipe: Recipe, corrections: Corrections):
    rngs = nnx.Rngs(recipe.seeds.adapter)
    adapted = qwix.apply_lora_to_model(model, provider(recipe, module_path(recipe), corrections), **model.get_model_input(), rngs=rngs)
    for path, module in adapted.iter_modules():
        module.qwix_rngs = CountedKeys("/".join(map(str, path))) if corrections.counted_dropout else rngs
    return adapted


def _start_at_zero(adapted, corrections: Corrections) -> None:
    """Stock: adapters, and with them Adam's moments, take the base's dtype; PEFT keeps them in float32."""
    for _, variable in nnx.to_flat_state(nnx.state(adapted, nnx.LoRAParam)):
        dtype = jnp.float32 if corrections.float32_adapters else variable.dtype
        variable.set_value(jnp.zeros(variable.shape, dtype))


def check_adapted(model, recipe: Recipe) -> None:
    expected = {weight.name for weight in adapted(read_topology(recipe.checkpoint_dir), recipe)}
    odd = sorted(expected ^ set(lora_weights(model)))
    if odd:
        raise ContractError(f"Qwix and the contract disagree on {odd[0]} ({len(odd)} weights in all)")


def set_remat(model, policy: str) -> None:
    """Rematerialisation "none", "block", "decoder" (Tunix's) or "ours" (taps.py). A new config: jit compares it by value."""
    config = dataclasses.replace(model.config, remat_config=REMAT.get(policy, gemma4.RematConfig.NONE))
    for _, module in model.iter_modules():
        if hasattr(module, "config"):
            module.config = config
        if hasattr(module, "remat_ours"):
            module.remat_ours = policy == "ours"


def lora_weights(model) -> list[str]:
    """The adapted weights by hub name."""
    return sorted({tensor.name.rsplit(".", 1)[0] for tensor in lora_tensors(model)})


def get_adapter(model) -> dict[str, np.ndarray]:
    """`<weight>.lora_A` (r, in) and `<weight>.lora_B` (out, r)."""
    return {tensor.name: tensor.read() for tensor in lora_tensors(model)}


def set_adapter(model, tensors: dict[str, np.ndarray]) -> None:
    """Copies every adapter tensor; a missing, unknown or misshaped one is refused by name."""
    held = get_adapter(model)
    odd = sorted(set(held) ^ set(tensors))
    odd = odd or sorted(name for name in held if held[name].shape != tensors[name].shape)
    if odd:
        raise ContractError(f"adapter tensor {odd[0]} is missing, unknown or of another shape ({len(odd)} in all)")
    for tensor in lora_tensors(model):
        variable = tensor.variable
        variable.set_value(jnp.array(from_hub(variable, tensors[tensor.name]), variable.dtype))


@dataclass(frozen=True, slots=True)
class InitStatistics:
    """One weight's adapter as Qwix starts it: spread of A, largest |B| (0), digest of A."""

    weight: str
    seed: int
    std: float
    max_abs: float
    fan_in: int
    b_max_abs: float
    sha256: str


def own_init(model, recipe: Recipe, seed: int, corrections: Corrections = ALL) -> list[InitStatistics]:
    """The initial adapter of an adapted `model` under `seed`: the rule's own initialisers on Qwix's own shapes."""
    rule, rngs = provider(recipe, module_path(recipe), corrections).rules[0], nnx.Rngs(jax.random.key(seed, impl="rbg"))
    values, drawn = {}, {}
    for tensor in lora_tensors(model):
        initializer, variable = rule.lora_a_initializer if tensor.name.endswith("A") else rule.lora_b_initializer, tensor.variable
        if id(variable) not in values:  # one variable, one draw: what two weights share shows
            values[id(variable)] = initializer(rngs.params(), variable.shape, jnp.float32)
        drawn[tensor.name] = tensor.read(values[id(variable)])
    return [init_statistics(weight, seed, drawn) for weight in lora_weights(model)]


def init_statistics(weight: str, seed: int, drawn: dict[str, np.ndarray]) -> InitStatistics:
    a, b = drawn[f"{weight}.lora_A"], drawn[f"{weight}.lora_B"]
    spread = (float(a.std(dtype=np.float64)), float(np.abs(a).max()), a.shape[1], float(np.abs(b).max()))
    return InitStatistics(weight, seed, *spread, sha256_array(a))


def measured_scale(model, recipe: Recipe, corrections: Corrections = ALL) -> dict[str, float]:
    """Per weight the factor of B·A that Qwix really applies: least squares of its output over B(A(x)).

    `model` is unadapted and split; its projections are adapted and called one by one.
    """
    bench = Bench(model)
    made = abstract_adapted(bench, recipe, corrections)
    nnx.update(made, nnx.state(bench))
    for index, (_, variable) in enumerate(nnx.to_flat_state(nnx.state(made, nnx.LoRAParam))):
        draw = np.random.Generator(np.random.Philox(key=index)).standard_normal(variable.shape)
        variable.set_value(jnp.asarray(draw, jnp.float32))
    inputs = {
        name: np.random.Generator(np.random.Philox(key=1)).standard_normal(value.shape).astype(np.float32)
        for name, value in bench.get_model_input()["inputs"].items()
    }
    applied, plain = nnx.jit(lambda made, bench: (made(inputs), bench(inputs)))(made, bench)
    adapter = get_adapter(made)
    return {name: _fit(applied[name] - plain[name], inputs[name], adapter, name) for name in lora_weights(made)}


class Bench(nnx.Module):
    """The projections of a model, at their own paths, each fed its own input [2,4,...]."""

    def __init__(self, model: gemma4.Gemma4):
        self.layers = model.layers

    def projections(self) -> list[tuple[str, nnx.Module]]:
        return [(name, module) for path, module in self.iter_modules() if (name := projection_of(path))]

    def __call__(self, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: module(inputs[name]) for name, module in self.projections()}

    def get_model_input(self) -> dict:
        return {"inputs": {name: np.ones((2, 4, *_input_axes(module)), np.float32) for name, module in self.projections()}}


def _input_axes(module) -> tuple[int, ...]:
    """The axes that a projection contracts: (D,) or (N,H)."""
    if isinstance(module, gemma4.Einsum):
        return module.shape[:2] if module.einsum_str.startswith("BTNH") else (module.shape[1],)
    return (module.in_features,)


def _fit(applied, inputs, adapter: dict[str, np.ndarray], name: str) -> float:
    x = np.asarray(inputs, np.float64).reshape(8, -1)
    plain = x @ adapter[f"{name}.lora_A"].T.astype(np.float64) @ adapter[f"{name}.lora_B"].T.astype(np.float64)
    return float((np.asarray(applied, np.float64).reshape(8, -1) * plain).sum() / np.square(plain).sum())


def scaled(recipe: Recipe, *, alpha: float = 1.0, rslora: bool | None = None) -> Recipe:
    """The recipe with alpha times a factor, or rank-stabilised: controls of the scale."""
    changed = {"alpha": recipe.adapter.alpha * alpha, "rslora": recipe.adapter.rslora if rslora is None else rslora}
    return dataclasses.replace(recipe, adapter=dataclasses.replace(recipe.adapter, **changed))


def save_adapter(model, recipe: Recipe, folder: Path) -> None:
    write_adapter(get_adapter(model), recipe, folder)


def write_adapter(tensors: dict[str, np.ndarray], recipe: Recipe, folder: Path) -> None:
    """PEFT's own folder: adapter_config.json and adapter_model.safetensors."""
    adapter = recipe.adapter
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": adapter.rank, "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout, "use_rslora": adapter.rslora, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "init_lora_weights": True, "base_model_name_or_path": recipe.model.checkpoint,
        "target_modules": rf"model\.language_model\.layers\.\d+\.(self_attn|mlp)\.({'|'.join(adapter.targets)})",
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    named = {f"{MODEL_PREFIX}{name}.weight": value for name, value in tensors.items()}
    write_file(folder / "adapter_model.safetensors", named, {"format": "pt"})


def load_adapter(model, recipe: Recipe, folder: Path) -> None:
    """Puts the adapter of a PEFT folder into `model`; refuses one whose rank, alpha or rsLoRA is not the recipe's."""
    config = json.loads((folder / "adapter_config.json").read_text())
    expected = {"r": recipe.adapter.rank, "lora_alpha": recipe.adapter.alpha, "use_rslora": recipe.adapter.rslora}
    for key, value in expected.items():
        if config.get(key, False) != value:
            raise ContractError(f"{folder}: {key} = {config.get(key)!r}, the recipe's is {value!r}")
    tensors = read_file(folder / "adapter_model.safetensors")
    set_adapter(model, {name.removeprefix(MODEL_PREFIX).removesuffix(".weight"): value for name, value in tensors.items()})


def adapted(topology: Topology, recipe: Recipe) -> tuple[Weight, ...]:
    return topology.adapted(recipe.adapter.targets)
