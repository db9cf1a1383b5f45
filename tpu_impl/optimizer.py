"""The optimizer chain: torch's clip and torch's AdamW as optax transformations, accumulation by optax.MultiSteps."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from conformance.contract.recipe import Optimizer, Recipe
from tpu_impl.corrections import ALL, Corrections

CLIP_EPS = 1e-6  # torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6


class ClipState(NamedTuple):
    """The last step's global gradient norm before clipping, and the factor applied: float32 scalars."""

    grad_norm: jax.Array
    factor: jax.Array


class AdamState(NamedTuple):
    """Optimizer steps taken (int32), moments as the parameters, and the last step's learning rate (float32)."""

    count: jax.Array
    m: optax.Updates
    v: optax.Updates
    learning_rate: jax.Array


@dataclass(frozen=True, slots=True)
class Chain:
    """A recipe's optimizer with its table of learning rates (one a step); equal values give the same transformation."""

    optimizer: Optimizer
    learning_rates: tuple[float, ...]
    warmup_steps: int = 0
    corrections: Corrections = ALL

    def transformation(self) -> optax.GradientTransformation:
        return _transformation(self)

    def accumulated(self, micro_batches: int) -> optax.MultiSteps:
        return _accumulated(self, micro_batches)


def recipe_chain(recipe: Recipe, learning_rates: np.ndarray, corrections: Corrections = ALL) -> Chain:
    return Chain(recipe.optimizer, tuple(map(float, learning_rates)), recipe.schedule.warmup_steps, corrections)


# Cached: a jitted function takes a transformation for a new one unless it is the very same object.
@functools.cache
def _transformation(chain: Chain) -> optax.GradientTransformation:
    on, optimizer = chain.corrections, chain.optimizer
    clip = clip_as_torch(optimizer.clip_norm) if on.torch_clip else _stock_clip(optimizer.clip_norm)
    return optax.chain(clip, adamw_as_torch(chain) if on.torch_adamw else _stock_adamw(chain))


@functools.cache
def _accumulated(chain: Chain, micro_batches: int) -> optax.MultiSteps:
    return optax.MultiSteps(chain.transformation(), micro_batches)


def clip_as_torch(clip_norm: float | None) -> optax.GradientTransformation:
    """Gradients times min(1, clip / (norm + 1e-6)). Stock: optax clips by the norm alone, and keeps no norm to show."""

    def init(params):
        return ClipState(jnp.zeros([], jnp.float32), jnp.ones([], jnp.float32))

    def update(grads, state, params=None):
        norm = optax.global_norm(grads)
        factor = jnp.ones_like(norm) if clip_norm is None else jnp.minimum(1.0, clip_norm / (norm + CLIP_EPS))
        return jax.tree.map(lambda grad: grad * factor, grads), ClipState(norm, factor)

    return optax.GradientTransformation(init, update)


def adamw_as_torch(chain: Chain) -> optax.GradientTransformation:
    """torch.optim.AdamW: p (1 - lr wd) - lr/c1 · m / (sqrt(v)/sqrt(c2) + eps), c = 1 - beta^step.

    Stock: optax computes beta^step, and 1 minus it, in float32, up to 1e-5 off in the first steps; torch takes
    float64. Here every factor that depends on the step alone is a float64 table, rounded once.
    """
    optimizer, tables = chain.optimizer, _tables(chain)

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AdamState(jnp.zeros([], jnp.int32), zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros([], jnp.float32))

    def update(grads, state, params):
        m = jax.tree.map(lambda g, m: m + (1 - optimizer.beta1) * (g - m), grads, state.m)
        v = jax.tree.map(lambda g, v: optimizer.beta2 * v + (1 - optimizer.beta2) * jnp.square(g), grads, state.v)
        rate, size, root, decay = (table[state.count] for table in map(jnp.asarray, dataclasses.astuple(tables)))
        updates = jax.tree.map(
            lambda p, m, v: -decay * p - size * (m / (jnp.sqrt(v) / root + optimizer.eps)), params, m, v
        )  # fmt: skip
        return updates, AdamState(state.count + 1, m, v, rate)

    return optax.GradientTransformation(init, update)


@dataclass(frozen=True, slots=True)
class Tables:
    """float32 [steps] each: learning rate, lr / c1, sqrt(c2), lr · weight decay."""

    rate: np.ndarray
    size: np.ndarray
    root: np.ndarray
    decay: np.ndarray


def _tables(chain: Chain) -> Tables:
    rate, step = np.float64(_rates(chain)), np.arange(1, len(chain.learning_rates) + 1)
    c1, c2 = (1 - beta**step for beta in (chain.optimizer.beta1, chain.optimizer.beta2))
    values = (rate, rate / c1, np.sqrt(c2), rate * chain.optimizer.weight_decay)
    return Tables(*(value.astype(np.float32) for value in values))


def _rates(chain: Chain) -> np.ndarray:
    """float32 [steps]. Stock: optax's own cosine in float32, up to 843 ulp from the table."""
    if chain.corrections.rate_table:
        return np.asarray(chain.learning_rates, np.float32)
    return np.asarray([_stock_schedule(chain)(step) for step in range(len(chain.learning_rates))], np.float32)


def _stock_schedule(chain: Chain) -> optax.Schedule:
    peak = chain.optimizer.learning_rate
    return optax.warmup_cosine_decay_schedule(0.0, peak, chain.warmup_steps, len(chain.learning_rates))


def _stock_clip(clip_norm: float | None) -> optax.GradientTransformation:
    """optax's, with a state that shows what it did."""
    clip = optax.identity() if clip_norm is None else optax.clip_by_global_norm(clip_norm)

    def update(grads, state, params=None):
        clipped, _ = clip.update(grads, optax.EmptyState())
        norm = optax.global_norm(grads)
        return clipped, ClipState(norm, jnp.ones_like(norm) if clip_norm is None else jnp.minimum(1.0, clip_norm / norm))

    return optax.GradientTransformation(clip_as_torch(clip_norm).init, update)


def _stock_adamw(chain: Chain) -> optax.GradientTransformation:
    """optax.adamw from its own parts, in a state that shows the moments under one name."""
    table, o = jnp.asarray(_rates(chain)), chain.optimizer
    adam = optax.scale_by_adam(o.beta1, o.beta2, o.eps)

    def update(grads, state, params):
        scaled, inner = adam.update(grads, optax.ScaleByAdamState(state.count, state.m, state.v))
        rate = table[state.count]
        updates = jax.tree.map(lambda p, step: -rate * (step + o.weight_decay * p), params, scaled)
        return updates, AdamState(inner.count, inner.mu, inner.nu, rate)

    return optax.GradientTransformation(adamw_as_torch(chain).init, update)


def part_of(opt_state, kind: type):
    """The state of `kind` (ClipState, AdamState) inside a chain's state, or None."""
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda leaf: isinstance(leaf, kind))
    return next((leaf for leaf in leaves if isinstance(leaf, kind)), None)
