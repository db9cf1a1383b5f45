"""Everything random that both stacks start from, drawn by numpy's Philox and keyed by purpose, seed and tensor name.

A draw does not depend on the order of tensors, nor on which others are drawn.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from conformance.contract.recipe import Recipe
from conformance.contract.topology import Weight

WARM_B_STD = 0.05  # B·A then moves a layer's output by about a fifth: gradients of A are as large as those of B
WARM_MOMENT = 1e-3  # the size of one gradient element of the tiny model at a global norm near 1
WARM_STEPS_PAST_WARMUP = 5

Tensors = dict[str, np.ndarray]


def philox(purpose: str, seed: int, name: str) -> np.random.Generator:
    key = hashlib.sha256(f"{purpose}:{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))


@dataclass(frozen=True, slots=True)
class WarmState:
    """A training state in mid-run: adapter, first and second moments by tensor name, optimizer steps already taken."""

    adapter: Tensors
    m: Tensors
    v: Tensors
    step: int


def initial_adapter(recipe: Recipe, weights: tuple[Weight, ...]) -> Tensors:
    """A uniform in ±1/sqrt(in) (PEFT: kaiming_uniform with a = sqrt 5), B = 0; float32, PEFT's layout."""
    adapter = {}
    for weight in weights:
        bound, shape = 1 / np.sqrt(weight.in_features), (recipe.adapter.rank, weight.in_features)
        draw = philox("initial", recipe.seeds.adapter, f"{weight.name}.lora_A").uniform(-bound, bound, shape)
        adapter[f"{weight.name}.lora_A"] = draw.astype(np.float32)
        adapter[f"{weight.name}.lora_B"] = np.zeros((weight.out_features, recipe.adapter.rank), np.float32)
    return adapter


def warm_state(recipe: Recipe, weights: tuple[Weight, ...]) -> WarmState:
    """A, B and both moments non-zero, the schedule past its warm-up: at B = 0 A's gradient would be exactly 0."""
    adapter = _with_b(recipe, weights, "warm", lambda weight: WARM_B_STD)
    seed = recipe.seeds.adapter
    m = {name: _normal("m", seed, name, value.shape, WARM_MOMENT) for name, value in adapter.items()}
    v = {name: np.square(_normal("v", seed, name, value.shape, WARM_MOMENT)) for name, value in adapter.items()}
    v = {name: value + np.float32(0.1 * WARM_MOMENT**2) for name, value in v.items()}
    return WarmState(adapter, m, v, recipe.schedule.warmup_steps + WARM_STEPS_PAST_WARMUP)


def loud_adapter(recipe: Recipe, weights: tuple[Weight, ...]) -> Tensors:
    """|scale·B·A| near 1/sqrt(in), the size of the weights themselves: a merge that ignores it cannot pass."""
    a_std = {weight.name: 1 / np.sqrt(3 * weight.in_features) for weight in weights}
    gain = recipe.scale * np.sqrt(recipe.adapter.rank)
    return _with_b(recipe, weights, "loud", lambda weight: weight.in_features**-0.5 / (gain * a_std[weight.name]))


def perturbed(adapter: Tensors, run: int) -> Tensors:
    """A moved by -2 to 2 ulp, element by element: the smallest difference that two right implementations may have."""
    moved = dict(adapter)
    for name, value in adapter.items():
        if name.endswith(".lora_A"):
            ulps = philox("perturbed", run, name).integers(-2, 3, value.shape)
            moved[name] = (value + ulps * np.spacing(value)).astype(np.float32)
    return moved


def _with_b(recipe: Recipe, weights: tuple[Weight, ...], purpose: str, std) -> Tensors:
    adapter = initial_adapter(recipe, weights)
    for weight in weights:
        name = f"{weight.name}.lora_B"
        adapter[name] = _normal(purpose, recipe.seeds.adapter, name, adapter[name].shape, std(weight))
    return adapter


def _normal(purpose: str, seed: int, name: str, shape: tuple[int, ...], std: float) -> np.ndarray:
    return (std * philox(purpose, seed, name).standard_normal(shape)).astype(np.float32)
