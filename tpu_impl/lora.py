"""Qwix's LoRA with PEFT's arithmetic: scale, stream dtype, and dropout that is counted, not drawn from a moving state."""

import dataclasses
import math
import zlib
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import qwix
from flax import nnx

from conformance.contract.recipe import Recipe
from tpu_impl.corrections import ALL, Corrections

_dropout_key: ContextVar[jax.Array | None] = ContextVar("dropout_key", default=None)


def pefts_a(key: jax.Array, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
    """A [..., r] uniform in ±1/sqrt(fan_in): PEFT's kaiming_uniform(a = sqrt 5). Stock: he_uniform, sqrt 6 times wider."""
    bound = math.prod(shape[:-1]) ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


@contextmanager
def dropout_key(seed: jax.Array | None, step: jax.Array | None):
    """Dropout on inside, with masks that depend on (seed, step, weight) alone; off when `seed` is None.

    Stock: a Qwix model has no evaluation switch, and its masks come from a counter in the model that checkpoints leave out.
    """
    key = None if seed is None else jax.random.fold_in(jax.random.key(seed, impl="rbg"), step)
    token = _dropout_key.set(key)
    try:
        yield
    finally:
        _dropout_key.reset(token)


class CountedKeys(nnx.Rngs):
    """Stands in for the Rngs that Qwix looks for in a module: one key per weight, no state."""

    def __init__(self, name: str):
        self.name = name

    def __getitem__(self, stream: str):
        return lambda: jax.random.fold_in(_dropout_key.get(), zlib.crc32(self.name.encode()))


class PeftLora(qwix.LoraProvider):
    """Qwix's provider; B·A's product joins the stream in the stream's dtype, as in PEFT.

    Stock: a float32 adapter on a bfloat16 base makes the module's output, and all that follows it, float32.
    """

    def __init__(self, rule: qwix.LoraRule, corrections: Corrections):
        super().__init__([rule])
        self.rules, self._corrections = (rule,), corrections

    def einsum(self, einsum_str, *operands, **kwargs):
        return self._in_stream(super().einsum(einsum_str, *operands, **kwargs), operands)

    def dot_general(self, lhs, rhs, *args, **kwargs):
        return self._in_stream(super().dot_general(lhs, rhs, *args, **kwargs), (lhs, rhs))

    def _in_stream(self, out: jax.Array, operands) -> jax.Array:
        return out.astype(jnp.result_type(*operands)) if self._corrections.stream_dtype else out

    def _get_current_rule_and_op_id(self, *args, **kwargs):
        rule, op = super()._get_current_rule_and_op_id(*args, **kwargs)
        if self._corrections.counted_dropout and isinstance(rule, qwix.LoraRule) and _dropout_key.get() is None:
            rule = dataclasses.replace(rule, dropout=0.0)
        return rule, op


def provider(recipe: Recipe, module_path: str, corrections: Corrections = ALL) -> PeftLora:
    """Qwix multiplies by alpha / rank: with rsLoRA alpha is made larger, because Qwix has no such switch."""
    adapter = recipe.adapter
    alpha = recipe.scale * adapter.rank if corrections.rslora else adapter.alpha
    init = {"lora_a_initializer": pefts_a} if corrections.peft_init else {}
    rule = qwix.LoraRule(module_path=module_path, rank=adapter.rank, alpha=alpha, dropout=adapter.dropout, **init)
    return PeftLora(rule, corrections)
