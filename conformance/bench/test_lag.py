"""A run calls itself invalid when the client did not keep up."""

import dataclasses

import pytest

from conformance.bench.lag import lag_of
from conformance.bench.load import Measurement
from conformance.bench.synthetic import GOOD, MS


def measurement(loop_ms: list[float], dispatch_ms: list[float], spacing_ns: int = 10 * MS) -> Measurement:
    starts = [index * spacing_ns for index in range(len(dispatch_ms))]
    records = tuple(
        dataclasses.replace(GOOD, scheduled_ns=start, sent_ns=start + round(late * MS))
        for start, late in zip(starts, dispatch_ms, strict=True)
    )
    return Measurement(tuple(round(late * MS) for late in loop_ms), 0, "", False, 0.0, 0.0, records)


QUICK = [0.2] * 95 + [4.0] * 5


def test_a_client_that_keeps_up_is_valid():
    assert lag_of(measurement(QUICK, QUICK)).valid


@pytest.mark.parametrize(
    ("loop_ms", "dispatch_ms", "words"),
    [
        ([1.2] * 100, QUICK, "loop lag p50 is 1.2 ms, at most 1 ms is allowed"),
        ([0.2] * 95 + [6.0] * 5, QUICK, "loop lag p99 is 6.0 ms, at most 5 ms is allowed"),
        (QUICK, [1.2] * 100, "dispatch lag p50 is 1.2 ms"),
        (QUICK, [0.2] * 95 + [900.0] * 5, "dispatch lag p99 is 900.0 ms"),
        ([], QUICK, "loop lag p50 is nan ms"),
        (QUICK, [], "dispatch lag p50 is nan ms"),
    ],
)
def test_each_limit_is_seen(loop_ms, dispatch_ms, words):
    """Control: each of the four limits by itself, and nothing sampled."""
    lag = lag_of(measurement(loop_ms, dispatch_ms))
    assert not lag.valid
    assert words in lag.problems[0]


def test_a_burst_is_sent_one_after_the_other():
    """Its dispatch lag is no fault; its loop lag is."""
    late = [0.2 * index for index in range(100)]
    assert lag_of(measurement(QUICK, late, spacing_ns=0)).valid
    assert not lag_of(measurement([6.0] * 9, late, spacing_ns=0)).valid
    assert not lag_of(measurement(QUICK, late)).valid
