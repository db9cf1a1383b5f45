"""Layers of one kind as a loop: a CPU then compiles two layers instead of twelve, and recording compiles many programs.

Tunix's own layers and its own `__call__` run; only the list of layers is replaced, inside the traced function, by one module that
scans over it. On an accelerator this is off: stacking the weights would copy the model.
"""

import functools
import itertools
from contextlib import contextmanager
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from tunix.models.gemma4 import model as gemma4

from tpu_impl.lora import layer_number
from tpu_impl.taps import LAYER_STREAMS, listen, note


class Run(NamedTuple):
    """Neighbouring layers of one kind in every block of the pattern: numbers [blocks,n], weights stacked [blocks,n,...]."""

    numbers: jax.Array
    state: nnx.State


def is_rolled() -> bool:
    return jax.default_backend() == "cpu"


@contextmanager
def rolled(model: gemma4.Gemma4):
    """`model` (made in this trace) with its layers as a loop, while inside."""
    layers = model.layers
    model.layers = nnx.List([RolledLayers(layers)]) if is_rolled() else layers
    try:
        yield
    finally:
        model.layers = layers


class RolledLayers(nnx.Module):
    """Stands where Tunix's `__call__` expects a layer; takes no cache."""

    def __init__(self, layers: nnx.List):
        self.layers = layers

    def __call__(self, x_BTD, positions, cache, mask, per_layer_input=None, kv_shared_cache=None):
        graphdefs, runs = _runs(list(self.layers))
        call = functools.partial(_block, graphdefs, (positions, None, mask))
        note("hidden", x_BTD)
        x_BTD, streams = jax.lax.scan(call, x_BTD, runs)
        for name, value in streams.items():
            for one in value.reshape(-1, *value.shape[2:]):
                note(name, one)
        return None, x_BTD, None


def _block(graphdefs, inputs, x_BTD, runs: list[Run]):
    """One repetition of the pattern: its runs of equal layers, one after the other."""
    streams = []
    for graphdef, run in zip(graphdefs, runs, strict=True):
        x_BTD, heard = jax.lax.scan(functools.partial(_layer, graphdef, inputs), x_BTD, run)
        streams.append(heard)
    return x_BTD, jax.tree.map(lambda *parts: jnp.concatenate(parts), *streams)


def _layer(graphdef, inputs, x_BTD, run: Run):
    """Tunix's layer with the weights of this turn; what its taps note leaves the loop as its output."""
    with layer_number(run.numbers), listen() as heard:
        _, x_BTD, _ = nnx.merge(graphdef, run.state)(x_BTD, *inputs)
    return x_BTD, {name: heard[name][-1] for name in LAYER_STREAMS}


def _runs(layers: list[gemma4.DecoderLayer]) -> tuple[list, list[Run]]:
    """(graph definition, Run) of each run of equal layers in the pattern."""
    kinds = [layer.attn.attn_type for layer in layers]
    period = _period(kinds)
    graphdefs, runs = [], []
    for _, group in itertools.groupby(range(period), key=kinds.__getitem__):
        group = list(group)
        numbers = [start + index for start in range(0, len(layers), period) for index in group]
        split = [nnx.split(layers[number]) for number in numbers]
        shape = (len(layers) // period, len(group))
        graphdefs.append(split[0][0])
        runs.append(Run(jnp.asarray(numbers).reshape(shape), _stacked([state for _, state in split], shape)))
    return graphdefs, runs


def _stacked(states: list, shape: tuple[int, int]):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(*shape, *leaves[0].shape), *states)


def _period(kinds: list) -> int:
    """The shortest pattern that repeats to the whole."""
    sizes = (size for size in range(1, len(kinds) + 1) if len(kinds) % size == 0)
    return next(size for size in sizes if kinds == kinds[:size] * (len(kinds) // size))
