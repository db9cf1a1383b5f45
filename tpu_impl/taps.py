"""Taps: Tunix sows nothing, so `watch` gives its layers and post-norms classes that note their output while someone listens."""

import functools
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from flax import nnx
from tunix.models.gemma4 import model as gemma4

_listening: ContextVar[dict | None] = ContextVar("listening", default=None)


class WatchedNorm(gemma4.RMSNorm):
    """Notes its output [B,T,D] under `watched`."""

    def __call__(self, x):
        return note(self.watched, super().__call__(x))


class WatchedLayer(gemma4.DecoderLayer):
    """Notes the stream [B,T,D] that leaves it, and the first one the stream that enters; runs Tunix's block under `remat_ours`."""

    def __call__(self, x, *args, **kwargs):
        if self.watched == 0:
            note("hidden", x)
        call = _remat_ours(self) if self.remat_ours else super().__call__
        cache, x, kv = call(x, *args, **kwargs)
        note("keys", kv[0])
        return cache, note("hidden", x), kv


def _remat_ours(layer: WatchedLayer):
    """The port's own policy: keep the projections' outputs, recompute attention probabilities and elementwise work."""
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return functools.partial(nnx.remat(gemma4.DecoderLayer.block, policy=policy, graph_updates=False), layer)


def watch(model: gemma4.Gemma4) -> gemma4.Gemma4:
    """Gives the watched modules their classes and names, in place."""
    for index, layer in enumerate(model.layers):
        layer.__class__, layer.watched, layer.remat_ours = WatchedLayer, index, False
        layer.post_attention_norm.__class__, layer.post_attention_norm.watched = WatchedNorm, "attention"
        layer.post_ffw_norm.__class__, layer.post_ffw_norm.watched = WatchedNorm, "mlp"
    model.final_norm.__class__, model.final_norm.watched = WatchedNorm, "final"
    return model


def note(name: str, value: jax.Array) -> jax.Array:
    heard = _listening.get()
    if heard is not None:
        heard.setdefault(name, []).append(value)
    return value


@contextmanager
def listen():
    """The streams of the forward passes inside, by name, in the order of the computation."""
    token = _listening.set({})
    try:
        yield _listening.get()
    finally:
        _listening.reset(token)
