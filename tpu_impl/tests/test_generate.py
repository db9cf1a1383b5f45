"""Greedy generation is the same with and without Tunix's cache, past the sliding window, and teacher-forced."""

import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from conformance.contract.choices import END, Choices, ended, stop_reason
from conformance.contract.plan import Plan, make_plan
from conformance.contract.recipe import load_recipe
from tpu_impl import generate as generating
from tpu_impl.generate import forced, generate, generate_uncached
from tpu_impl.model import load_checkpoint

RECIPE = load_recipe(Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml")
SAME = 1e-3  # of a log-probability: other orders of float32 summation give 1e-5


@pytest.fixture(scope="module")
def short() -> Plan:
    """The plan with 4 prompts of unequal length, all but one longer than the sliding window."""
    plan = make_plan(RECIPE)
    plan.__dict__["prompts"] = tuple(plan.prompts[row] for row in (0, 4, 5, 15))
    return plan


@pytest.fixture(scope="module")
def model():
    return load_checkpoint(RECIPE.checkpoint_dir)


@pytest.fixture(scope="module")
def cached(model, short) -> Choices:
    return generate(model, short)


def test_the_cache_changes_nothing(model, short, cached):
    """Without a cache the same tokens come out, though the guess that it starts from is wrong in its last 8 tokens."""
    guess = np.where(np.arange(short.max_new_tokens) < short.max_new_tokens - 8, cached.ids_GK, 100)
    assert not np.array_equal(guess, cached.ids_GK)
    assert np.array_equal(generate_uncached(model, short, guess), cached.ids_GK)


def test_a_visible_padding_is_told_apart(model, short, cached):
    """Control: with the padding attended, the shorter prompts continue otherwise and the longest does not."""
    left_padded = generating._left_padded
    with mock.patch.object(generating, "_left_padded", lambda plan: (left_padded(plan)[0], np.ones_like(left_padded(plan)[1]))):
        seen = generate(model, short)
    differs = (seen.ids_GK != cached.ids_GK).any(1)
    lengths = np.asarray(list(map(len, short.prompts)))
    assert differs[lengths < lengths.max()].any() and not differs[lengths.argmax()]


def test_forcing_the_choices_gives_them_back(model, short, cached):
    argmax, choices = forced(model, short, cached.ids_GK)
    assert np.array_equal(argmax, cached.ids_GK)
    assert np.abs(choices.logprobs_GK - cached.logprobs_GK).max() < SAME
    assert np.abs(choices.gaps_GK - cached.gaps_GK).max() < SAME


def test_forcing_other_tokens_is_told_apart(model, short):
    """Control: the model does not choose what it is given."""
    other = np.full((len(short.prompts), short.max_new_tokens), 100, np.int32)
    assert (forced(model, short, other)[0] != other).mean() > 0.5


def test_a_window_one_token_wider_is_told_apart(short, cached):
    """Control: the tokens lie past the sliding window, so a window mask or ring cache that is off by one shows."""
    wider = load_checkpoint(RECIPE.checkpoint_dir)
    config = dataclasses.replace(wider.config, sliding_window_size=wider.config.sliding_window_size + 1)
    for _, module in wider.iter_modules():
        if hasattr(module, "config"):
            module.config = config
    assert np.abs(forced(wider, short, cached.ids_GK)[1].logprobs_GK - cached.logprobs_GK).max() > 10 * SAME


def test_a_row_ends_with_its_eos(short):
    eos = short.eos_ids[-1]
    found = ended(np.asarray([[9, eos, 9, eos], [9, 9, 9, 9]]), short)
    assert found.tolist() == [[9, eos, END, END], [9, 9, 9, 9]]
    assert [stop_reason(row, short) for row in found] == [("eos", 2), ("length", 4)]
