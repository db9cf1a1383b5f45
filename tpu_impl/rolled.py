"""Layers of one kind as a loop: a CPU then compiles two layers instead of twelve, and recording compiles many programs.

Tunix's own layers and its own `__call__` run; only the list of layers is replaced, by one module that scans over it with the weights
of equal layers stacked. Off on an accelerator, where a long compile is paid once and the stock layout is what is timed.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
from flax import nnx
from tunix.models.gemma4 import model as gemma4

from tpu_impl.lora import layer_number
from tpu_impl.taps import LAYER_STREAMS, listen, note


class RolledLayers(nnx.Module):
    """Stands where Tunix's `__call__` expects a layer; takes no cache.

    `runs[k]` is a layer that stands for `numbers[k]`, the layers of its kind [blocks][n]; its variables are stacked [blocks,n,...].
    """

    def __init__(self, layers: list[gemma4.DecoderLayer]):
        self.numbers = _runs([layer.attn.attn_type for layer in layers])
        self.runs = nnx.List([_stacked(layers, numbers) for numbers in self.numbers])

    def __call__(self, x_BTD, positions, cache, mask, per_layer_input=None, kv_shared_cache=None):
        graphdefs, states = zip(*(nnx.split(run) for run in self.runs), strict=True)
        numbers = [jnp.asarray(one) for one in self.numbers]
        note("hidden", x_BTD)
        block = functools.partial(_block, graphdefs, (positions, None, mask))
        x_BTD, streams = jax.lax.scan(block, x_BTD, list(zip(numbers, states, strict=True)))
        for name, value in streams.items():
            for one in value.reshape(-1, *value.shape[2:]):
                note(name, one)
        return None, x_BTD, None


def roll(model: gemma4.Gemma4) -> gemma4.Gemma4:
    """`model` with its layers as a loop on a CPU, in place."""
    if jax.default_backend() == "cpu":
        model.layers = nnx.List([RolledLayers(list(model.layers))])
    return model


def places(model: gemma4.Gemma4, path: tuple) -> list[tuple[tuple[int, ...], tuple]]:
    """Where the layers of a variable are: ([block, n], its path in a model that is not rolled)."""
    if path[:3] != ("layers", 0, "runs"):
        return [((), path)]
    numbers = model.layers[0].numbers[path[3]]
    return [((b, n), ("layers", number, *path[4:])) for b, block in enumerate(numbers) for n, number in enumerate(block)]


def _block(graphdefs, inputs, x_BTD, runs):
    """One repetition of the pattern: its runs of equal layers, one after the other."""
    streams = []
    for graphdef, run in zip(graphdefs, runs, strict=True):
        x_BTD, heard = jax.lax.scan(functools.partial(_layer, graphdef, inputs), x_BTD, run)
        streams.append(heard)
    return x_BTD, jax.tree.map(lambda *parts: jnp.concatenate(parts), *streams)


def _layer(graphdef, inputs, x_BTD, number_and_state):
    """Tunix's layer with the weights of this turn; what its taps note leaves the loop as its output."""
    number, state = number_and_state
    with layer_number(number), listen() as heard:
        _, x_BTD, _ = nnx.merge(graphdef, state)(x_BTD, *inputs)
    return x_BTD, {name: heard[name][-1] for name in LAYER_STREAMS}


def _stacked(layers: list[gemma4.DecoderLayer], numbers: tuple[tuple[int, ...], ...]) -> gemma4.DecoderLayer:
    shape = (len(numbers), len(numbers[0]))
    split = [nnx.split(layers[number]) for block in numbers for number in block]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(*shape, *leaves[0].shape), *(state for _, state in split))
    return nnx.merge(split[0][0], state)


def _runs(kinds: list) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Numbers of equal neighbours in the shortest pattern that repeats, run by run: [blocks][n] each."""
    sizes = (size for size in range(1, len(kinds) + 1) if len(kinds) % size == 0)
    period = next(size for size in sizes if kinds == kinds[:size] * (len(kinds) // size))
    groups = [tuple(group) for _, group in itertools.groupby(range(period), key=kinds.__getitem__)]
    return tuple(tuple(tuple(start + n for n in group) for start in range(0, len(kinds), period)) for group in groups)
