"""Taps: Tunix sows nothing, so `watch` gives its layers, norms and projections classes that note what leaves them while someone
listens."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from flax import nnx
from tunix.models.gemma4 import model as gemma4

from tpu_impl.attention import Attention, unit
from tpu_impl.layout import projection_of

_listening: ContextVar[dict | None] = ContextVar("listening", default=None)
MOVES = {"convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "transpose", "copy"}  # primitives that compute nothing


class WatchedNorm(gemma4.RMSNorm):
    """Notes its output [B,T,D] under `norm`, and under `watched` where that names a stream; and the dtype that it computes in."""

    def __call__(self, x):
        out = note("norm", super().__call__(x))
        if _listening.get() is not None:
            note("norm_arithmetic", jnp.zeros(0, narrowest(super().__call__, x)))
        return note(self.watched, out) if self.watched else out


class WatchedAttention(Attention):
    """Notes the dtype that the norm of the values computes in."""

    def unit_values(self, values_BSKH):
        if _listening.get() is not None:
            note("norm_arithmetic", jnp.zeros(0, narrowest(unit, values_BSKH)))
        return super().unit_values(values_BSKH)


class WatchedEinsum(gemma4.Einsum):
    """Notes its output, with the adapter's, under its projection's name."""

    def __call__(self, x):
        return note(self.watched, super().__call__(x))


class WatchedLinear(nnx.Linear):
    """Notes its output, with the adapter's, under its projection's name."""

    def __call__(self, inputs, *args, **kwargs):
        return note(self.watched, super().__call__(inputs, *args, **kwargs))


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
    for _, module in model.iter_modules():
        if isinstance(module, gemma4.RMSNorm):
            module.__class__, module.watched = WatchedNorm, ""
    for index, layer in enumerate(model.layers):
        layer.__class__, layer.watched, layer.remat_ours = WatchedLayer, index, False
        layer.attn.__class__ = WatchedAttention
        layer.post_attention_norm.watched, layer.post_ffw_norm.watched = "attention", "mlp"
    model.final_norm.watched = "final"
    return model


def watch_projections(model: gemma4.Gemma4) -> None:
    """The same for the projections of an adapted model: Qwix and the split of K and V are done with them by then."""
    for path, module in model.iter_modules():
        if name := projection_of(path):
            module.__class__ = WatchedEinsum if isinstance(module, gemma4.Einsum) else WatchedLinear
            module.watched = name.rsplit(".", 1)[-1]


def narrowest(function: Callable, x: jax.Array) -> jnp.dtype:
    """The narrowest floating dtype in which `function` computes anything; casts and moves are no computation."""
    again = jax.make_jaxpr(lambda x: function(x))  # JAX remembers what it has traced by the function
    return min(_computed(again(x).jaxpr), key=lambda dtype: jnp.finfo(dtype).bits)


def _computed(jaxpr) -> Iterator[jnp.dtype]:
    for equation in jaxpr.eqns:
        if "jaxpr" in equation.params:  # a jitted function of jax.numpy
            yield from _computed(equation.params["jaxpr"].jaxpr)
        elif equation.primitive.name not in MOVES:
            dtypes = (value.aval.dtype for value in equation.outvars)
            yield from (dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating))


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
