"""The least arithmetic of a training step, for MFU and for how long a run takes at least. Recomputed activations count nothing.

A token of N frozen parameters costs 2 N forward and 2 N backward (no gradient of the weight itself); of an adapter's parameters
2 N, and 4 N backward. The head counts for targets alone: no other token's logits are needed. Attention: two products forward
and four backward of 2 FLOP for each query, each key that it sees, and each element of the heads. Norms, rotations, softmax and
the optimizer are left out.
"""

from math import prod

import numpy as np

from conformance.contract.plan import Plan, PlannedRow
from conformance.contract.topology import Topology

FROZEN, TRAINED, ATTENTION = 4, 6, 12  # FLOP a parameter and token; a query, key and element
FORMULA = (
    "MFU = FLOP of the steps / (their time x chips x peak bf16 FLOP/s); FLOP of a row = (4 N + 6 A) x tokens + 4 H x targets + "
    "12 x sum over layers of (heads x head size x pairs of query and key); N base, A adapter, H head parameters; no recomputation"
)


def step_flop(plan: Plan) -> tuple[float, ...]:
    """Of every planned step; padding costs nothing, since nothing of it is needed."""
    rows = {row.row: _row_flop(plan, row) for row in plan.rows}
    return tuple(float(sum(rows[row] for row in step.rows)) for step in plan.steps)


def _row_flop(plan: Plan, row: PlannedRow) -> float:
    tokens, targets, topology = len(row.ids), int(row.loss_mask.sum()), plan.topology
    base, adapter = base_parameters(topology), adapter_parameters(plan)
    head = topology.vocabulary * topology.hidden
    attention = sum(_attention_width(layer) * _pairs(tokens, _window(topology, layer.kind)) for layer in topology.layers)
    return (FROZEN * base + TRAINED * adapter) * tokens + FROZEN * head * targets + ATTENTION * attention


def base_parameters(topology: Topology) -> int:
    """Those that every token is multiplied with: an embedding is looked up."""
    return sum(prod(shape) for name, shape in topology.tensors.items() if len(shape) == 2 and "embed_tokens" not in name)


def adapter_parameters(plan: Plan) -> int:
    adapter = plan.recipe.adapter
    return sum(adapter.rank * (one.in_features + one.out_features) for one in plan.topology.adapted(adapter.targets))


def _attention_width(layer) -> int:
    """Heads x head size."""
    return layer.targets["self_attn.q_proj"].out_features


def _window(topology: Topology, kind: str) -> int | None:
    return None if kind == "full_attention" else topology.window


def _pairs(tokens: int, window: int | None) -> int:
    """Keys that queries see, in all: each token its own and those before it, as far as the window reaches."""
    return int(np.minimum(np.arange(1, tokens + 1), window or tokens).sum())
