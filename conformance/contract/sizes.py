"""How large a bundle becomes: arithmetic over the schema, so that the caps of DESIGN.md are proved without a 31B run."""

import math
import re

import numpy as np

from conformance.contract.kinds import BLOCK_COLUMNS, BLOCK_ROWS, LOGIT_POSITIONS, SKETCH, STATE_POSITIONS, TOP
from conformance.contract.probes import POSITIONS, PROBES, PROMPTS, WINDOWS, long_width
from conformance.contract.recipe import Recipe
from conformance.contract.schema import ARRAYS, TENSOR, WEIGHT, ArraySpec
from conformance.contract.topology import Topology

LARGE_PARAMETERS = 100_000_000  # from here on arrays are reduced; the tiny model has 2 million
CAP_LARGE_BYTES, CAP_TINY_BYTES = 2 * 10**9, 200 * 10**6
NEW_TOKENS = 64
OPTIMIZER_STEPS = 5 * 4  # cases x steps of the contract's gradients


def is_large(topology: Topology) -> bool:
    return sum(math.prod(shape) for shape in topology.tensors.values()) >= LARGE_PARAMETERS


def bundle_bytes(recipe: Recipe, topology: Topology, tokens: int, *, large: bool) -> dict[str, int]:
    """Bytes by rung of the largest bundle that the schema allows; `tokens` counts the kept rows' tokens.

    The oracle's float64 arrays exist at tiny size only: a 31B model does not fit in float64.
    """
    total: dict[str, int] = {}
    for spec in (spec for spec in ARRAYS if "elsewhere" not in spec.key):  # counted with the logits that they stand beside
        for copies, shape in _shapes(spec, recipe, topology, tokens):
            total[spec.rung] = total.get(spec.rung, 0) + copies * _kept_bytes(spec, shape, large)
    return total


def _shapes(spec: ArraySpec, recipe: Recipe, topology: Topology, tokens: int):
    """(number of keys, shape of each) of a spec."""
    weights, rank = topology.adapted(recipe.adapter.targets), recipe.adapter.rank
    prefixes = _alternatives(spec.key)
    if WEIGHT in spec.key:
        for weight in weights:
            if TENSOR in spec.key:
                yield prefixes, (rank, weight.in_features)
                yield prefixes, (weight.out_features, rank)
            else:
                yield prefixes, (weight.out_features, weight.in_features)
        return
    width, layers = WINDOWS * topology.window, len(topology.layers)
    sizes = {"P": PROBES, "T": width, "V": topology.vocabulary, "L": layers, "M": layers + 1, "S": POSITIONS, "H": topology.hidden}
    sizes |= {"U": long_width(width), "G": PROMPTS, "K": NEW_TOKENS, "N": tokens, "R": tokens, "Q": tokens, "n": 2000, "1": 1}
    yield prefixes * (OPTIMIZER_STEPS if spec.rung == "optimizer" else 1), tuple(sizes[letter] for letter in spec.dims)


def _alternatives(key: str) -> int:
    """How many keys a pattern stands for, outside the weight's own name; the ten gradient variants count as ten."""
    head = key.replace(TENSOR, "").replace(WEIGHT, "")
    groups = [group.count("|") + 1 for group in re.findall(r"\(([^()]*)\)", head.replace(r"(on|off)", "on"))]
    return 10 if "accumulation" in head else math.prod(groups) * (3 if r"\.[mv]" in head else 1)


def _kept_bytes(spec: ArraySpec, shape: tuple[int, ...], large: bool) -> int:
    size = np.dtype(spec.dtype).itemsize if spec.dtype else 2
    if not large:
        return math.prod(shape) * size
    if spec.dtype == "float64" and spec.rung in ("logits", "gradients", "one_step"):
        return 0
    kept = {
        "full": math.prod(shape) * size,
        "sketch": SKETCH * 8,
        "logits": LOGIT_POSITIONS * shape[-1] * size + math.prod(shape[:2]) * (2 + TOP) * 4,
        "states": shape[1] * STATE_POSITIONS * shape[-1] * size if spec.large == "states" else 0,
        "block": BLOCK_ROWS * BLOCK_COLUMNS * size,
    }
    return kept[spec.large]
