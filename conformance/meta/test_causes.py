"""Likely causes: every rung has some, what a failure looks like puts the right one first, and what is not known is said."""

import pytest

from conformance.causes import Cause, explanations, in_numbers, likely_causes, usual_causes
from conformance.contract.faults import read_causes, read_faults
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict
from conformance.judge import Judge, explain
from conformance.meta.synthetic import failing_finding

PROJECTIONS = [f"mlp.{name}_proj" for name in ("down", "gate", "up")] + [f"self_attn.{name}_proj" for name in "qkvo"]
UNKNOWN = dict(check="test_unheard_of", promise="", where="", expected="", got="", measured=1.0, limit=0.0, unit="differences")


def spread_of_a(times: float) -> Finding:
    """As the check of the rung adapters finds it where A is drawn `times` as wide as asked, too wide for its bound."""
    judge = Judge("adapters", "test_a_starts_with_the_recipes_spread", "A starts with the recipe's spread.")
    judge.measure_in("relative difference of A's standard deviation", "sampled")
    for layer in range(12):
        for name in PROJECTIONS:
            where = f"port, model.language_model.layers.{layer}.{name}, seed 0"
            judge.within(where, abs(times - 1), 0.07, expected=0.0589, got=0.0589 * times)
            judge.same(f"{where}, largest ({times}) within the bound (1)", times <= 1, True)
            judge.same(where + ", B", 0.0, 0.0)
    return judge.finding


def test_every_rung_is_explained():
    """A promise, how it is judged, and causes with their mend, planted or written by hand."""
    assert tuple(explanations()) == RUNGS
    for rung, about in explanations().items():
        assert about.promise and about.judged
        assert all(cause.symptom for cause in about.causes)
        assert len(usual_causes(rung)) >= 4
        assert all(cause.cause and cause.seam and cause.mend for cause in usual_causes(rung))


def test_no_cause_is_said_twice():
    """What a planted fault covers is not written by hand too."""
    by_hand = [cause.cause for about in explanations().values() for cause in about.causes]
    assert len(set(by_hand)) == len(by_hand)
    assert set(by_hand) & {cause.cause for cause in read_causes().values()} == set()


def test_every_planted_cause_belongs_to_a_fault():
    assert {fault.cause for fault in read_faults()} == set(read_causes())


def test_a_factor_names_its_cause():
    """An A 2.449 times too wide is Qwix's default initialiser, known by a planted fault; its check alone tells as much."""
    found = likely_causes(spread_of_a(2.449))[0]
    assert "he_uniform" in found.cause
    assert "lora_a_initializer" in found.mend
    assert found.is_close


def test_a_factor_that_disagrees_speaks_against_a_cause():
    """Control: with another factor the same check is not put down to the initialiser's default."""
    assert "he_uniform" not in likely_causes(spread_of_a(1.2))[0].cause


def test_the_world_size_is_named_by_its_factor():
    """Written by hand: no planted fault looks like this."""
    found = failing_finding(
        "batches", check="test_steps_have_the_same_tokens", promise="Every optimizer step has the plan's rows and tokens.", limit=0.0,
        where="port, step 0, tokens", expected="7560", got="15120", measured=1.0, unit="differences", first="port, step 0, tokens",
    )  # fmt: skip
    assert "world size" in next(cause.cause for cause in likely_causes(found) if cause.similarity is None)
    assert in_numbers(found) == "tokens is 2 x the expected (15120 against 7560)"


def test_what_no_fault_looks_like_is_said():
    """Control: an unknown failure matches nothing closely; causes by hand come before planted ones that are hardly alike."""
    finding = failing_finding("checkpoint", **UNKNOWN | {"where": "port, after a kill"})
    found = likely_causes(finding)
    assert not any(cause.is_close for cause in found)
    assert "folder is written in place" in found[0].cause
    assert "matches no planted fault closely" in explain(finding)


def test_failures_of_a_rung_are_matched_together():
    """What fails beyond a fault's signature speaks against it; checks that it does not reach and other rungs do not."""
    finding = spread_of_a(2.449)
    other = failing_finding(check="test_the_seed_matters")
    alone, among = (_stock_init(likely_causes(finding, findings)) for findings in ((), [finding, other]))
    assert among.similarity < alone.similarity
    passed = failing_finding(check="test_unheard_of", verdict=Verdict.PASS)
    assert _stock_init(likely_causes(finding, [finding, passed, failing_finding("logits")])) == alone


def _stock_init(causes: tuple[Cause, ...]) -> Cause:
    return next(cause for cause in causes if "he_uniform" in cause.cause)


def test_a_failure_message_has_the_numbers_and_the_mend():
    lines = explain(spread_of_a(2.449)).splitlines()
    likely = next(line for line in lines if "likely:" in line)
    assert "A's standard deviation is 2.449 x the expected: " in likely
    assert "he_uniform" in likely and "Where:" in likely and "Mend: Set lora_a_initializer" in likely
    first = "  first:     port, model.language_model.layers.0.mlp.down_proj, seed 0; 168 of 252 are over the limit"
    assert first in lines


@pytest.mark.parametrize("rung", ["serving", "sharding", "evaluation"])
def test_rungs_without_planted_faults_keep_those_by_hand(rung):
    assert [cause.similarity for cause in likely_causes(failing_finding(rung, **UNKNOWN))] == [None] * len(explanations()[rung].causes)


def test_an_unknown_rung_has_no_causes():
    assert likely_causes(failing_finding(rung="unheard_of")) == ()
