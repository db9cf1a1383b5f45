"""Reduced arrays: a bundle of a large model fits its cap, and judges as the full one does."""

import math

import numpy as np
import pytest

from conformance.compare import cosine, relative_error
from conformance.contract.kinds import block, reduce, sketch
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import array_spec
from conformance.contract.sizes import CAP_LARGE_BYTES, CAP_TINY_BYTES, bundle_bytes, is_large
from conformance.contract.topology import topology_of
from conformance.contract.validate import check_array
from conformance.meta.test_recipe import RECIPES

# google/gemma-4-31b-it, config.json, text_config (the fields that decide shapes).
GEMMA4_31B = {
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "vocab_size": 262144,
    "sliding_window": 1024,
    "final_logit_softcapping": 30.0,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "num_global_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
}


def test_the_31b_is_the_31b():
    """The topology's arithmetic gives 30.7 billion parameters."""
    topology = topology_of(GEMMA4_31B)
    assert sum(math.prod(shape) for shape in topology.tensors.values()) == pytest.approx(30.7e9, rel=0.01)
    assert is_large(topology)


def test_a_31b_bundle_fits_its_cap():
    """10 million tokens and every array that the schema allows stay under 2 GB; in full they would not."""
    recipe, topology = load_recipe(RECIPES / "gemma4-31b.toml"), topology_of(GEMMA4_31B)
    assert sum(bundle_bytes(recipe, topology, 10_000_000, large=True).values()) < CAP_LARGE_BYTES
    assert sum(bundle_bytes(recipe, topology, 10_000_000, large=False).values()) > 50 * CAP_LARGE_BYTES


def test_a_tiny_bundle_fits_its_cap(recipe, plan):
    """The tiny recipe's bundle stays under 200 MB, in full."""
    tokens = sum(len(row.ids) for row in plan.rows)
    assert sum(bundle_bytes(recipe, plan.topology, tokens, large=False).values()) < CAP_TINY_BYTES


def test_a_sketch_measures_errors():
    """Relative error and cosine of two sketches are those of the arrays, to the sketch's own spread."""
    draw = np.random.default_rng(0)
    truth = draw.standard_normal((300, 500))
    other = truth + 1e-3 * draw.standard_normal(truth.shape)
    a, b = sketch(other, "name"), sketch(truth, "name")
    assert relative_error(a, b) == pytest.approx(relative_error(other, truth), rel=0.4)
    assert cosine(a, b) > 0.999
    assert cosine(sketch(truth, "another"), b) < 0.5  # control: other signs


@pytest.mark.parametrize(
    ("rung", "key", "shape"),
    [
        ("logits", "f32/base/logits", "logits"),
        ("logits", "f32/long/logits", "long"),
        ("logits", "f32/base/mlp", "states"),
        ("gradients", "f32/model.language_model.layers.0.mlp.up_proj.lora_A", "sketch"),
        ("merge", "trained/model.language_model.layers.0.mlp.up_proj", "block"),
    ],
)
def test_reduced_arrays_match_the_schema(plan, rung, key, shape):
    """What the writer keeps of a large model is what the reader accepts."""
    probes, width = plan.probes.ids.shape
    vocabulary, sampled = plan.topology.vocabulary, len(plan.probes.positions)
    full = {
        "logits": (probes, width, vocabulary), "long": (1, len(plan.probes.long), vocabulary), "states": (probes, 4, sampled, 6)
    }.get(shape, (300, 400))  # fmt: skip
    spec = array_spec(rung, key)
    assert spec.large == ("logits" if shape == "long" else shape)
    value = np.random.default_rng(1).standard_normal(full).astype(np.float32)
    for name, kept in reduce(spec.large, key, value, plan.probes).items():
        check_array(rung, name, kept, large=True)
        assert kept.size < value.size


def test_blocks_of_one_name_are_the_same_places():
    """The block of a product is judged on the block of each side."""
    draw = np.random.default_rng(2)
    a, b = draw.standard_normal((200, 300)), draw.standard_normal((200, 300))
    assert np.allclose(block(a, "w") + block(b, "w"), block(a + b, "w"))
