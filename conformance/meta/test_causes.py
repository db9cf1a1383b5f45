"""Likely causes: every rung has some, and a finding's signature puts the right one first."""

import pytest

from conformance.causes import explanations, likely_causes, ratio
from conformance.contract.schema import RUNGS
from conformance.meta.synthetic import failing_finding


def first(**finding) -> str:
    return likely_causes(failing_finding(**finding))[0].cause


def test_every_rung_is_explained():
    """A promise, how it is judged, and four to six causes with their mend."""
    assert tuple(explanations()) == RUNGS
    for about in explanations().values():
        assert about.promise and about.judged
        assert 4 <= len(about.causes) <= 6
        assert all(cause.symptom and cause.cause and cause.seam and cause.mend for cause in about.causes)


def test_a_factor_names_its_cause():
    """An A 2.449 times too wide is Qwix's default initialiser."""
    assert "he_uniform" in first()
    assert "alpha is applied" in first(check="test_the_scale_is_the_recipes", expected="2", got="24", promise="The scale is right.")


def test_a_factor_that_disagrees_speaks_against_a_cause():
    """Control: with another factor the same check is not put down to the initialiser."""
    assert "he_uniform" not in first(got="0.0295")


@pytest.mark.parametrize(
    ("rung", "check", "word"),
    [
        ("tokens", "test_every_row_starts_with_its_only_bos", "BOS is added twice"),
        ("gradients", "test_accumulation_changes_nothing", "micro-batches"),
        ("logits", "test_the_softcap_acts_once", "softcap"),
        ("generation", "test_the_cache_changes_nothing", "cached path"),
        ("merge", "test_untouched_tensors_and_metadata", "index"),
    ],
)
def test_a_check_names_its_cause(rung, check, word):
    found = first(rung=rung, check=check, promise="", where="", expected="", got="", measured=1.0, unit="differences")
    assert word in found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expected": "2", "got": "4"}, 2.0),
        ({"expected": "", "got": "", "measured": 1.449}, 2.449),
        ({"expected": "a", "got": "b", "unit": "ulp"}, None),
        ({"expected": "0", "got": "1", "unit": "differences"}, None),
    ],
)
def test_the_factor_is_read_from_the_finding(changes, expected):
    assert ratio(failing_finding(**changes)) == expected


def test_an_unknown_rung_has_no_causes():
    assert likely_causes(failing_finding(rung="unheard_of")) == ()
