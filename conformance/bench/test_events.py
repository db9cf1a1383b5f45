"""Outcomes: each way in which a reply can be wrong has its name, and only a whole one is ok."""

import pytest

from conformance.bench.events import OUTCOMES, outcomes, whole
from conformance.bench.synthetic import GOOD, LISTED, MS, WRONG, but


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_reply_has_its_name(name):
    expected, record = WRONG[name]
    assert record.outcome == expected
    assert expected in OUTCOMES or expected.startswith("http_")
    assert whole((record,)) == ()


def test_every_outcome_is_shown():
    assert set(OUTCOMES) <= {expected for expected, _ in WRONG.values()}


@pytest.mark.parametrize(
    "record",
    [
        GOOD,
        but(**LISTED),
        but(chunk_characters=(0, 6, 0, 6)),  # a text held back until its bytes are whole
        but(chunk_ns=(1, 2), chunk_characters=(6, 6), chunk_tokens=(2, 2)),  # several tokens a chunk
        but(fixed_length=False, usage_completion_tokens=4, max_tokens=9, finish_reasons=("stop",)),
    ],
)
def test_right_replies_are_ok(record):
    """Control: what servers rightly do is no failure."""
    assert record.outcome == "ok"


def test_an_empty_text_is_no_first_token():
    record = but(chunk_characters=(0, 0, 3, 3))
    assert record.first_token_ns == 30 * MS
    assert outcomes((record, GOOD, but(status=500))) == {"ok": 2, "http_500": 1}
