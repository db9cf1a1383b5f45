"""What a forward pass shows: logits, the residual stream after each layer, what each block adds, the dtype of each stream."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from conformance.contract.plan import Plan
from tpu_impl.data import positions_of
from tpu_impl.layout import whole_array
from tpu_impl.model import logits_of
from tpu_impl.taps import listen

# What was heard -> the stream whose dtype it shows. Tunix casts its attention probabilities to the keys' dtype.
SHOWS = {"hidden": "residual", "keys": "attention_probabilities"}


@dataclass(frozen=True, slots=True)
class Probed:
    """Float32. M = layers + 1: before layer 0 and after each; S sampled positions."""

    logits_PTV: np.ndarray
    pre_cap_max_abs: float
    hidden_PMSH: np.ndarray
    attention_PLSH: np.ndarray
    mlp_PLSH: np.ndarray
    dtypes: dict[str, str]


def probe(model, ids_PT: np.ndarray, attention_PT: np.ndarray, positions_S: np.ndarray) -> Probed:
    """One forward pass."""
    graphdef, state = nnx.split(model)
    attended = attention_PT.astype(np.bool_)
    logits, pre_cap, streams, seen = _forward(graphdef, state, ids_PT, attended, positions_of(attended), positions_S)
    taken = {name: as_recorded(value) for name, value in streams.items()}
    dtypes = {SHOWS.get(name, name): "+".join(sorted(one.dtype.name for one in empty)) for name, empty in seen.items()}
    dtypes |= {"logits": logits.dtype.name}
    return Probed(as_recorded(logits), float(pre_cap), taken["hidden"], taken["attention"], taken["mlp"], dtypes)


@functools.partial(jax.jit, static_argnums=0)
def _forward(graphdef, state, ids_PT, attended_PT, positions_PT, sampled_S):
    """(logits [P,T,V], largest |logit| before the softcap, streams [P,L,S,...] by name, an empty array of each dtype by name)."""
    model = nnx.merge(graphdef, state)
    with listen() as heard:
        logits = logits_of(model, ids_PT, attended_PT, positions_PT)
    (final,) = heard.pop("final")
    seen = {name: [jnp.zeros(0, dtype) for dtype in {value.dtype for value in values}] for name, values in heard.items()}
    streams = {name: jnp.stack([value[:, sampled_S] for value in heard[name]], 1) for name in ("hidden", "attention", "mlp")}
    return logits, jnp.abs(model.embedder.decode(final)).max(), streams, seen


def plain_logits(model, plan: Plan) -> np.ndarray:
    """Logits [P,T,V] of the contract's probes, right-padded."""
    return probe(model, plan.probes.ids, plan.probes.attention, plan.probes.positions).logits_PTV


def left_padded(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The probes' ids and attention [P,T], each row's padding moved to its left."""
    shifts = (plan.probes.attention == 0).sum(-1)
    moved = [(np.roll(i, s), np.roll(a, s)) for i, a, s in zip(plan.probes.ids, plan.probes.attention, shifts, strict=True)]
    ids, attention = (np.stack(value) for value in zip(*moved, strict=True))
    return ids, attention


def as_recorded(value: jax.Array) -> np.ndarray:
    """The whole array, wherever its parts lie; bfloat16 widens to float32 exactly."""
    return whole_array(value.astype(jnp.float32))
