"""What the taps say of a norm: the narrowest dtype in which it computes, whatever it is given and gives."""

import jax.numpy as jnp
import pytest
from flax import nnx
from tunix.models.gemma4 import model as gemma4

from conformance.contract.seams import edited
from tpu_impl.attention import unit
from tpu_impl.faults.plants import EDITS
from tpu_impl.faults.seams import without
from tpu_impl.taps import narrowest

X = jnp.ones((2, 3, 8), jnp.bfloat16)


@pytest.fixture
def norm():
    return gemma4.RMSNorm(8, rngs=nnx.Rngs(0), dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)


def test_a_norm_of_a_bfloat16_stream_computes_in_float32(norm):
    assert norm(X).dtype == jnp.bfloat16
    assert narrowest(norm, X) == jnp.float32


def test_a_norm_that_computes_in_the_streams_dtype_is_told_apart(norm):
    """Control: its input and output are the same as the other's."""
    with edited(EDITS["norm in the stream's dtype"], None):
        assert norm(X).dtype == jnp.bfloat16
        assert narrowest(norm, X) == jnp.bfloat16


def test_values_are_normed_in_float32():
    assert unit(X).dtype == jnp.bfloat16
    assert narrowest(unit, X) == jnp.float32


def test_values_that_are_normed_in_the_streams_dtype_are_told_apart():
    """Control: Tunix's own norm of the values, which gives the same dtype."""
    with without("float32_values"):
        assert unit(X).dtype == jnp.bfloat16
        assert narrowest(unit, X) == jnp.bfloat16


def test_one_narrow_operation_among_many_is_enough():
    assert narrowest(lambda x: jnp.square(x.astype(jnp.float32)).mean() + jnp.square(x).mean(), X) == jnp.bfloat16
