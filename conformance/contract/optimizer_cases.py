"""Gradients that the contract feeds to both optimizer chains: Adam hides a wrong scale of real gradients, these don't."""

from dataclasses import dataclass

import numpy as np

from conformance.contract.draws import Tensors, philox

SHAPES = {"a.lora_A": (12, 20), "a.lora_B": (32, 12), "b.lora_A": (12, 28), "b.lora_B": (8, 12)}
STEPS = 4
# Case -> (smallest, largest gradient element before scaling, global norm as a multiple of the recipe's clip): below it, just above
# it (where the 1e-6 beside the norm weighs most) and far above it.
CASES = {
    "plain_below_clip": (1e-4, 1e-2, 0.5),
    "just_above_clip": (1e-4, 1e-2, 1.001),
    "plain_above_clip": (1e-4, 1e-1, 3.0),
    "wide_above_clip": (1e-12, 1e2, 40.0),
    "wide_below_clip": (1e-12, 1e-1, 0.9),
}


@dataclass(frozen=True, slots=True)
class OptimizerCase:
    """Start state and gradients (one dict a step); `step` optimizer steps were taken before; float32 throughout."""

    name: str
    params: Tensors
    grads: tuple[Tensors, ...]
    m: Tensors
    v: Tensors
    step: int
    learning_rates: tuple[float, ...]


def optimizer_cases(clip_norm: float | None) -> tuple[OptimizerCase, ...]:
    """On both sides of the recipe's clip; without one, as if it were 1."""
    return tuple(_case(name, low, high, norm * (clip_norm or 1.0)) for name, (low, high, norm) in CASES.items())


def _case(name: str, low: float, high: float, norm: float) -> OptimizerCase:
    draw = philox("optimizer", 0, name)
    params = {key: draw.normal(0, 0.1, shape).astype(np.float32) for key, shape in SHAPES.items()}
    m = {key: draw.normal(0, 1e-3, shape).astype(np.float32) for key, shape in SHAPES.items()}
    v = {key: np.square(draw.normal(0, 1e-3, shape)).astype(np.float32) for key, shape in SHAPES.items()}
    grads = tuple(_gradients(draw, low, high, norm) for _ in range(STEPS))
    return OptimizerCase(name, params, grads, m, v, 10, (2e-3, 1.5e-3, 1e-4, 1e-6))


def _gradients(draw: np.random.Generator, low: float, high: float, norm: float) -> Tensors:
    """Log-uniform sizes between `low` and `high`, random signs, scaled to the global norm as float32 allows."""
    raw = {
        key: np.exp(draw.uniform(np.log(low), np.log(high), shape)) * draw.choice([-1.0, 1.0], shape)
        for key, shape in SHAPES.items()
    }
    total = np.sqrt(sum(np.square(value).sum() for value in raw.values()))
    return {key: (value * norm / total).astype(np.float32) for key, value in raw.items()}
