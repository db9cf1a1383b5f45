"""Prompts: exact length, ordinary tokens, nothing shared."""

from pathlib import Path

import numpy as np
import pytest

from conformance.bench.prompts import BLOCK_TOKENS, draw_prompts, ordinary_tokens, prompts_digest, shares_a_prefix
from conformance.contract.errors import ContractError
from conformance.contract.tokens import ChatTokenizer

CHECKPOINT = Path(__file__).parents[2] / "fixtures" / "tiny-gemma4"


@pytest.fixture(scope="module")
def tokens():
    return ordinary_tokens(CHECKPOINT)


def test_prompts_have_their_exact_length_and_no_special_token(tokens):
    tokenizer = ChatTokenizer(CHECKPOINT)
    prompts = draw_prompts(tokens, 50, 513, seed=1)
    assert prompts.shape == (50, 513)
    assert prompts.dtype == np.int32
    assert not np.isin(prompts, [tokenizer.bos_id, tokenizer.pad_id, *tokenizer.eos_ids]).any()
    assert not any(mark in tokenizer.decode(prompts[0]) for mark in ("<bos>", "<|turn>", "<turn|>"))
    assert len(np.unique(prompts)) > 0.99 * len(tokens)


@pytest.mark.parametrize("length_tokens", [1, 5, BLOCK_TOKENS, 128])
def test_no_two_prompts_share_a_first_block(length_tokens):
    """Even of a vocabulary so small that drawing alone would repeat itself."""
    small = np.arange(40, dtype=np.int32)
    assert not shares_a_prefix(draw_prompts(small, 40, length_tokens, seed=1))


def test_a_shared_first_block_is_seen(tokens):
    """Control: two prompts that differ after their first block only, as a shared system prompt makes them."""
    prompts = draw_prompts(tokens, 8, 64, seed=1)
    prompts[5, :BLOCK_TOKENS] = prompts[2, :BLOCK_TOKENS]
    assert shares_a_prefix(prompts)


def test_digest_is_the_same_everywhere_and_tells_prompts_apart(tokens):
    prompts = draw_prompts(tokens, 8, 64, seed=1)
    assert prompts_digest(prompts) == "99d7e4e435fef8f82868e23a5605392c393106cfce62fb982b5303a8977cd104"
    other = prompts.copy()
    other[3, 40] = tokens[0] if other[3, 40] != tokens[0] else tokens[1]
    digests = [prompts_digest(one) for one in (prompts, other, draw_prompts(tokens, 8, 64, 2), draw_prompts(tokens, 8, 65, 1))]
    assert len(set(digests)) == 4


def test_impossible_prompts_are_refused(tokens, tmp_path):
    with pytest.raises(ContractError, match="41 different prompts of 1 tokens cannot be drawn from 40 tokens"):
        draw_prompts(tokens[:40], 41, 1, seed=1)
    with pytest.raises(ContractError, match=r"no tokenizer\.json"):
        ordinary_tokens(tmp_path)
