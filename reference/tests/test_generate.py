"""Greedy generation is the same with and without the cache, and teacher-forced."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.contract.choices import END, stop_reason
from reference.generate import forced, generate, generate_uncached


@pytest.fixture(scope="module")
def short(session):
    """The plan with 4 prompts."""
    plan = replace(session.plan)
    plan.__dict__["prompts"] = session.plan.prompts[::4]
    return plan


def test_the_cache_changes_nothing(session, short):
    """Without a cache the same tokens come out, though the guess that it starts from is wrong in its last 8 tokens."""
    model = session.base()
    cached = generate(model, short, "f32")
    guess = np.where(np.arange(short.max_new_tokens) < short.max_new_tokens - 8, cached.ids_GK, 100).astype(np.int32)
    assert not np.array_equal(guess, cached.ids_GK)
    assert np.array_equal(generate_uncached(model, short, guess, "f32"), cached.ids_GK)
    argmax, choices = forced(model, short, cached.ids_GK, "f32")
    assert np.array_equal(argmax, cached.ids_GK)
    assert np.abs(choices.logprobs_GK - cached.logprobs_GK).max() < 1e-3


def test_forcing_other_tokens_is_told_apart(session, short):
    """Control: the model does not choose what it is given."""
    other = np.full((len(short.prompts), short.max_new_tokens), 100, np.int32)
    argmax, _ = forced(session.base(), short, other, "f32")
    assert (argmax != other).mean() > 0.5


def test_a_row_ends_with_its_eos(session):
    eos = session.plan.eos_ids[-1]
    assert stop_reason(np.asarray([9, eos, END, END]), session.plan) == ("eos", 2)
    assert stop_reason(np.asarray([9, 9, 9, 9]), session.plan) == ("length", 4)
