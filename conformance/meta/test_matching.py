"""Matching a failure against recorded ones: the formula, number by number, and what speaks against a cause."""

import dataclasses

import pytest

from conformance.compare import ErrorShape
from conformance.findings import factor, kind_of
from conformance.judge import Judge
from conformance.matching import (
    AT_LEAST,
    EXTRA,
    MOST,
    Traits,
    agreement,
    is_uniform,
    ratio,
    signature_of,
    similarity,
    traits,
)
from conformance.meta.synthetic import failing_finding
from conformance.signatures import read_signatures, write_signatures

KIND = {"layer mlp": 1.0}
SEEN = Traits(
    first=("layer", "mlp"), kinds=KIND, errors=KIND, values=("float32",), low=2.4, high=2.449, along=0.9, spread=0.0, size=1.5, over=0.5
)  # fmt: skip


@pytest.mark.parametrize(
    ("got", "expected", "found"),
    [
        ("4", "2", 2.0),
        (4, 2.0, 2.0),
        ("[1]: 15120", "[1]: 7560", 2.0),
        ("2 items", "1 items", 2.0),
        ("int32[6]", "int32[4]", 1.5),
        ("1 at [57]", "0", float("inf")),
        ("0", "0", None),
        ("a", "2", None),
    ],
)
def test_a_factor_is_read_from_numbers_and_texts(got, expected, found):
    assert factor(got, expected) == found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expected": "2", "got": "4"}, 2.0),
        ({"expected": "", "got": "", "measured": 1.449}, 2.449),
        ({"expected": "a", "got": "b", "unit": "ulp"}, None),
        ({"expected": "0", "got": "1", "unit": "relative difference"}, None),
    ],
)
def test_the_factor_of_a_finding(changes, expected):
    assert ratio(failing_finding(**changes)) == expected


@pytest.mark.parametrize(
    ("low", "high", "uniform"),
    [
        (2.36, 2.54, True),  # the stock initialiser's, estimated from a short sample of each tensor
        (1.01, 1.02, False),
        (1.0000001, 1.0000002, True),  # not told apart in float32
        (-0.0002, 0.00002, True),
        (0.0, 1.0, False),
        (None, None, None),
    ],
)
def test_what_counts_as_one_factor(low, high, uniform):
    assert is_uniform(low, high) is uniform


def test_a_kind_has_no_numbers_digests_or_stack():
    """A cause may lie in either stack."""
    for place in ("port, layer 3 (full_attention) mlp", "reference, layer 5 (full_attention) mlp"):
        assert kind_of(place) == "layer full_attention mlp"
    assert kind_of("row 3 " + "0123456789abcdef" * 4) == "row"


def test_a_finding_says_what_is_over_and_by_which_factors():
    judge = Judge("optimizer", "test_x", "The promise.")
    judge.within("port, case a, step 0", 0.5, 1.0, shape=ErrorShape(9.0))  # not over: its factor does not count
    for step, times in ((1, 1.01), (2, 1.02)):
        judge.within(f"port, case a, step {step}", 2.0 + step, 1.0, shape=ErrorShape(times, along=0.9, spread=0.5))
    judge.within("port, case a, step 3", 2.0, 1.0, shape=ErrorShape(9.0, along=0.1, spread=0.5))  # hardly a factor: does not count
    judge.within("reference, case b", 2.5, 1.0, expected=2.0, got=3.0)
    found = judge.finding
    assert (found.where, found.first, found.over, found.compared) == ("port, case a, step 2", "port, case a, step 1", 4, 5)
    assert (found.low, found.high, found.kinds) == (1.01, 1.5, {"case a step": 3, "case b": 1})
    assert (found.along, found.spread) == (0.9, 0.5)  # of the first


def test_floats_that_differ_never_look_the_same():
    judge = Judge("batches", "test_x", "The promise.")
    judge.same("step 0", 0.00010000001, 0.0001)
    assert (judge.finding.expected, judge.finding.got) == ("0.0001", "0.00010000001")
    assert judge.finding.low == pytest.approx(1.0000001, abs=1e-9)


def test_traits_of_a_finding():
    found = traits(failing_finding(first="reference, layer 0 mlp", got="1", expected="0", over=3, compared=12, kinds={"a": 1, "b": 2}))
    assert (found.first, found.kinds, found.over) == (("layer", "mlp"), {"b": 0.67, "a": 0.33}, 0.25)
    assert (found.low, found.high, found.size) == (None, None, 1.5)
    assert traits(failing_finding(low=1.0, high=float("inf"))).high == MOST
    shaped = traits(failing_finding(along=-0.12345, spread=0.5))
    assert (shaped.along, shaped.spread) == (-0.123, -0.3)
    assert (found.along, found.spread) == (None, None)


def test_equal_traits_agree_fully():
    assert agreement(SEEN, SEEN, sized=False) == agreement(SEEN, SEEN, sized=True) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"first": ("layer", "attention")},
        {"kinds": {"layer mlp": 0.5, "layer attention": 0.5}},
        {"errors": {"layer mlp": 0.5, "layer attention": 0.5}},
        {"values": ("bfloat16",)},
        {"low": 1.0},
        {"high": 24.0},
        {"low": None, "high": None},
        {"along": 0.0},
        {"along": None},
        {"spread": -2.0},
        {"size": 3.5},
        {"over": 1.0},
    ],
    ids=str,
)
def test_every_trait_counts(changes):
    assert agreement(SEEN, dataclasses.replace(SEEN, **changes), sized=False) < 0.98


def test_another_size_of_the_same_fault_agrees_more_than_another_fault():
    """Neither factor nor share of the limit speaks against it, and a small one may show no factor; the same ones speak for it."""
    other = dataclasses.replace(SEEN, low=1.019, high=1.02, size=0.1)
    hidden = dataclasses.replace(SEEN, low=None, high=None)
    for one in (other, hidden):
        assert agreement(one, SEEN, sized=False) < agreement(one, SEEN, sized=True)
    assert agreement(other, SEEN, sized=True) < 1
    assert all(0 < least < 1 for least in AT_LEAST.values())


@pytest.mark.parametrize(
    ("trait", "near", "far"),
    [("high", 2.45, 1.0), ("high", -0.001, 0.9), ("along", 0.85, -0.9), ("spread", -0.1, -1.0), ("size", 1.6, 4.0)],
)
def test_what_another_recipe_scatters_by_is_forgiven(trait, near, far):
    """What two recordings of one fault differ by costs little, far more than that much; factors may be 0 or less."""
    seen = dataclasses.replace(SEEN, high=0.001) if near < 0 and trait == "high" else SEEN
    close, apart = (agreement(dataclasses.replace(seen, **{trait: value}), seen, sized=False) for value in (near, far))
    assert apart < 0.92 < 0.98 < close


def test_a_failure_that_is_missing_counts_more_than_one_too_many():
    both, one = {"a": SEEN, "b": SEEN}, {"a": SEEN}
    assert similarity(one, both, sized=False, passed=("b", "c")) == 1 / 2
    assert similarity(both, one, sized=False) == 1 / (1 + EXTRA)
    assert similarity({"c": SEEN}, both, sized=False) == similarity({}, both, sized=False) == 0


def test_a_check_that_did_not_run_says_nothing():
    assert similarity({"a": SEEN}, {"a": SEEN, "b": SEEN}, sized=False, passed=("c",)) == 1


def test_signatures_read_back(tmp_path):
    signature = signature_of([failing_finding(first="port, layer 0", over=3), failing_finding(check="test_other", reason="it broke")])
    write_signatures(tmp_path / "s.json", "digest", {"a-fault": signature, "another": {}})
    assert read_signatures(tmp_path / "s.json") == {"a-fault": signature, "another": {}}
