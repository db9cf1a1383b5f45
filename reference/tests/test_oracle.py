"""bfloat16 products: rounded once, to the nearest or stochastically."""

import pytest
import torch

from reference.oracle import arithmetic

ROWS = 64


def products(rounding: int | None, sign: float = 1.0) -> torch.Tensor:
    """[64,64] bfloat16: many drawings of 1 * (1 + 2^-7) + 1 * 2^-9, a quarter of an ulp above a bfloat16."""
    left = torch.full((ROWS, 2), sign, dtype=torch.bfloat16)
    right = torch.tensor([[1 + 2**-7], [2**-9]], dtype=torch.bfloat16).expand(2, ROWS)
    with arithmetic("bf16", rounding=rounding):
        return left @ right


def test_products_round_to_the_nearest():
    assert set(products(None).flatten().tolist()) == {1 + 2**-7}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_stochastic_rounding_takes_the_two_neighbours_as_often_as_they_are_near(sign):
    found = products(3, sign).double()
    assert set(found.flatten().tolist()) == {sign * (1 + 2**-7), sign * (1 + 2**-6)}
    above = (found.abs() > 1 + 2**-7).double().mean().item()
    assert abs(above - 0.25) < 5 * (0.25 * 0.75 / found.numel()) ** 0.5, "a quarter of an ulp: a quarter of them"


def test_a_seed_is_one_rounding_and_another_seed_another():
    assert torch.equal(products(3), products(3))
    assert not torch.equal(products(3), products(4))


def test_exact_products_stay_exact():
    exact = torch.eye(8, dtype=torch.bfloat16)
    with arithmetic("bf16", rounding=5):
        assert torch.equal(exact @ exact, exact)
