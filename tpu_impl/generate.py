"""Greedy generation with Tunix's cache, with what each choice weighed; the same choices teacher-forced."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from conformance.contract.choices import END, Choices, ended, uncached
from conformance.contract.plan import Plan
from tpu_impl.data import positions_of
from tpu_impl.layout import whole_array
from tpu_impl.model import logits_of


def generate(model, plan: Plan) -> Choices:
    """All prompts as one left-padded batch, up to `plan.max_new_tokens` tokens each, with the key-value cache.

    Tunix writes every row's cache at one index: the prompts must end together, hence the padding on the left.
    """
    graphdef, state = nnx.split(model)
    ids_GP, attended_GP = _left_padded(plan)
    prompt, new = ids_GP.shape[1], plan.max_new_tokens
    attended_GL = np.pad(attended_GP, ((0, 0), (0, new)), constant_values=True)
    positions_GL = positions_of(attended_GL)
    cache = model.init_cache(len(ids_GP), prompt + new, model.config.dtype)
    steps_L = np.arange(prompt + new)
    visible = attended_GL[:, None] & (steps_L <= np.arange(prompt)[:, None])
    token_G, weighed, cache = _choose(graphdef, state, ids_GP, positions_GL[:, :prompt], cache, visible)
    chosen = [(token_G, *weighed)]
    for at in range(prompt, prompt + new - 1):
        visible = attended_GL[:, None] & (steps_L <= at)
        token_G, weighed, cache = _choose(graphdef, state, token_G[:, None], positions_GL[:, at : at + 1], cache, visible)
        chosen.append((token_G, *weighed))
    ids, logprobs, gaps = (np.stack(values, 1) for values in zip(*jax.tree.map(whole_array, chosen), strict=True))
    return _choices(ended(ids, plan), logprobs, gaps)


@functools.partial(jax.jit, static_argnums=0)
def _choose(graphdef, state, tokens_GT, positions_GT, cache, visible_GTL):
    """(greedy token [G], (its log-probability, its lead over the second), cache) after the last of `tokens`."""
    model = nnx.merge(graphdef, state)
    logits, cache = model(tokens_GT, positions_GT, cache, visible_GTL, decode_only_last_token=True)
    token, *weighed = _weigh(logits[:, -1].astype(model.config.dtype))  # as logits_of
    return token, weighed, cache


def _weigh(logits_V):
    """(argmax, its log-probability, its lead over the second), over the last axis."""
    top, index = jax.lax.top_k(logits_V.astype(jnp.float32), 2)
    return index[..., 0], jax.nn.log_softmax(logits_V.astype(jnp.float32)).max(-1), top[..., 0] - top[..., 1]


def generate_uncached(model, plan: Plan, guess_GK: np.ndarray) -> np.ndarray:
    """Greedy ids [G,K] by full forward passes, whatever the guess."""
    return uncached(lambda ids_GK: forced(model, plan, ids_GK)[0], guess_GK, plan)


def forced(model, plan: Plan, ids_GK: np.ndarray) -> tuple[np.ndarray, Choices]:
    """(argmax int32 [G,K], what the given ids weighed) from one forward pass over each prompt with its continuation."""
    graphdef, state = nnx.split(model)
    length, new = max(map(len, plan.prompts)), ids_GK.shape[1]
    rows = np.full((len(ids_GK), length + new), plan.pad_id, np.int32)
    for row, prompt, ids in zip(rows, plan.prompts, ids_GK, strict=True):
        row[: len(prompt)], row[len(prompt) : len(prompt) + new] = prompt, np.where(ids == END, plan.pad_id, ids)
    attended = np.arange(length + new) < np.asarray([len(prompt) + new for prompt in plan.prompts])[:, None]
    starts = np.asarray([len(prompt) - 1 for prompt in plan.prompts])
    given = np.where(ids_GK == END, 0, ids_GK)
    found = _force(graphdef, state, rows, attended, positions_of(attended), starts, given)
    argmax, logprobs, gaps = map(whole_array, found)
    return np.where(ids_GK == END, END, argmax).astype(np.int32), _choices(ids_GK, logprobs, gaps)


@functools.partial(jax.jit, static_argnums=0)
def _force(graphdef, state, rows_GT, attended_GT, positions_GT, starts_G, given_GK):
    logits_GTV = logits_of(nnx.merge(graphdef, state), rows_GT, attended_GT, positions_GT)
    places_GK = starts_G[:, None] + jnp.arange(given_GK.shape[1])
    logits_GKV = jnp.take_along_axis(logits_GTV, places_GK[..., None], 1).astype(jnp.float32)
    argmax, _, gaps = _weigh(logits_GKV)
    logprobs = jnp.take_along_axis(jax.nn.log_softmax(logits_GKV), given_GK[..., None], -1)[..., 0]
    return argmax, logprobs, gaps


def _left_padded(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(ids int32, attended bool) [G,P]"""
    length = max(map(len, plan.prompts))
    ids = np.stack([np.pad(prompt, (length - len(prompt), 0), constant_values=plan.pad_id) for prompt in plan.prompts])
    return ids.astype(np.int32), np.arange(length) >= length - np.asarray(list(map(len, plan.prompts)))[:, None]


def _choices(ids_GK: np.ndarray, logprobs_GK: np.ndarray, gaps_GK: np.ndarray) -> Choices:
    weighed = (np.where(ids_GK != END, value, 0).astype(np.float32) for value in (logprobs_GK, gaps_GK))
    return Choices(ids_GK.astype(np.int32), *weighed)
