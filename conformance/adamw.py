"""AdamW with clipping by global norm, in float64: the formula that both chains are held to (torch.optim.AdamW, clip_grad_norm_)."""

from dataclasses import dataclass

import numpy as np

from conformance.contract.draws import Tensors
from conformance.contract.recipe import Optimizer

CLIP_EPS = 1e-6  # torch.nn.utils.clip_grad_norm_: factor = clip / (norm + 1e-6), at most 1


@dataclass(frozen=True, slots=True)
class Applied:
    """One step: float64 tensors by name; `update` is parameter after minus before.

    `m_terms` is the larger term of each m, `update_terms` the size of the update were m that large: where the terms of m cancel,
    rounding is theirs.
    """

    update: Tensors
    m: Tensors
    v: Tensors
    m_terms: Tensors
    update_terms: Tensors
    norm: float
    factor: float


def global_norm(grads: Tensors) -> float:
    return float(np.sqrt(sum(np.square(value.astype(np.float64)).sum() for value in grads.values())))


def clip_factor(norm: float, clip: float | None) -> float:
    return 1.0 if clip is None else min(1.0, clip / (norm + CLIP_EPS))


def apply(
    grads: Tensors, params: Tensors, m: Tensors, v: Tensors, step: int, rate: float, o: Optimizer, applied: float | None = None
) -> Applied:
    """`step` is the number of this step, counted from 1 (bias correction); `applied` the factor to clip with (None: the formula's)."""
    norm = global_norm(grads)
    factor = clip_factor(norm, o.clip_norm)
    g = {name: value.astype(np.float64) * (factor if applied is None else applied) for name, value in grads.items()}
    new_m = {name: o.beta1 * m[name].astype(np.float64) + (1 - o.beta1) * g[name] for name in g}
    new_v = {name: o.beta2 * v[name].astype(np.float64) + (1 - o.beta2) * np.square(g[name]) for name in g}
    c1, c2 = 1 - o.beta1**step, 1 - o.beta2**step
    per_m = {name: 1 / c1 / (np.sqrt(new_v[name] / c2) + o.eps) for name in g}
    decay = {name: o.weight_decay * params[name].astype(np.float64) for name in g}
    update = {name: -rate * (new_m[name] * per_m[name] + decay[name]) for name in g}
    terms = {name: np.maximum(np.abs(o.beta1 * m[name]), np.abs((1 - o.beta1) * g[name])) for name in g}
    update_terms = {name: rate * np.maximum(terms[name] * per_m[name], np.abs(decay[name])) for name in g}
    return Applied(update, new_m, new_v, terms, update_terms, norm, factor)


def sensitivity(m: np.ndarray, v: np.ndarray, g: np.ndarray, step: int, o: Optimizer) -> np.ndarray:
    """How far an element's update moves with its gradient, as a multiple of the learning rate: much where v is small.

    `m` and `v` after the step, `g` clipped, all float64 of one shape; `step` counts from 1.
    """
    c1, c2 = 1 - o.beta1**step, 1 - o.beta2**step
    root = np.sqrt(v / c2)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_v = np.where(root > 0, (1 - o.beta2) * g / (c2 * root), 0.0)
    return np.abs((1 - o.beta1) / c1 / (root + o.eps) - m / c1 / np.square(root + o.eps) * by_v)


def flat(tensors: Tensors) -> np.ndarray:
    """All tensors in name order, float64 [n]."""
    return np.concatenate([np.asarray(tensors[name], np.float64).ravel() for name in sorted(tensors)])


def unflat(values: np.ndarray, like: Tensors) -> Tensors:
    """The other way: float64 [n] into tensors of `like`'s names and shapes."""
    ends = np.cumsum([like[name].size for name in sorted(like)])[:-1]
    pieces = np.split(np.asarray(values, np.float64), ends)
    return {name: piece.reshape(like[name].shape) for name, piece in zip(sorted(like), pieces, strict=True)}
