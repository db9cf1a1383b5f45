"""Unique prompts of an exact length, as token ids from a seed. No two share a first block, so no prefix cache can help."""

import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from conformance.contract.digest import sha256_array
from conformance.contract.draws import philox
from conformance.contract.errors import ContractError

BLOCK_TOKENS = 16  # vLLM's default cache block: prefixes are shared by whole blocks, and a block counts only after equal ones
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")  # a byte-fallback token: alone it is no text


def ordinary_tokens(checkpoint: Path) -> np.ndarray:
    """int32 [n], sorted: ids of the tokenizer's own vocabulary, without added tokens (special ones, <unused...>) and bytes."""
    path = Path(checkpoint) / "tokenizer.json"
    if not path.is_file():
        raise ContractError(f"checkpoint {checkpoint}: no tokenizer.json in it")
    tokenizer = Tokenizer.from_file(str(path))
    added = set(tokenizer.get_added_tokens_decoder())
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    ids = sorted(number for text, number in vocabulary.items() if number not in added and not BYTE_TOKEN.fullmatch(text))
    return np.asarray(ids, np.int32)


def draw_prompts(tokens: np.ndarray, requests: int, length_tokens: int, seed: int) -> np.ndarray:
    """int32 [requests, length_tokens], every row's first block different from all others'."""
    first = min(length_tokens, BLOCK_TOKENS)
    if length_tokens < 1 or len(tokens) ** first < requests:
        raise ContractError(f"{requests} different prompts of {length_tokens} tokens cannot be drawn from {len(tokens)} tokens")
    generator = philox("prompts", seed, f"length {length_tokens}")
    prompts, seen = np.empty((requests, length_tokens), np.int32), set()
    for row in prompts:
        row[:] = _new_row(generator, tokens, length_tokens, seen)
        seen.add(row[:first].tobytes())
    return prompts


def prompts_digest(prompts: np.ndarray) -> str:
    return sha256_array(prompts)


def shares_a_prefix(prompts: np.ndarray) -> bool:
    """Whether two rows have the same first block."""
    return len({row[:BLOCK_TOKENS].tobytes() for row in prompts}) < len(prompts)


def _new_row(generator: np.random.Generator, tokens: np.ndarray, length_tokens: int, seen: set[bytes]) -> np.ndarray:
    while True:
        row = tokens[generator.integers(len(tokens), size=length_tokens)]
        if row[:BLOCK_TOKENS].tobytes() not in seen:
            return row
