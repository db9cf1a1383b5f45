"""A run calls itself invalid when the client did not keep up."""

import dataclasses

import pytest

from conformance.bench.lag import lag_of
from conformance.bench.load import Measurement
from conformance.bench.synthetic import GOOD, MS

QUICK, LATE = [0.2] * 95 + [4.0] * 5, [0.2] * 95 + [6.0] * 5


def measurement(first=QUICK, last=QUICK, dispatch=QUICK, spacing_ns=10 * MS, latency_ns=40 * MS) -> Measurement:
    """Lags in ms, one a request; each request has a whole reply."""
    records = []
    for index, lags in enumerate(zip(first, last, dispatch, strict=True)):
        first_ns, last_ns, dispatch_ns = (round(lag * MS) for lag in lags)
        start_ns = index * spacing_ns
        times = {"scheduled_ns": start_ns, "sent_ns": start_ns + dispatch_ns, "first_lag_ns": first_ns, "last_lag_ns": last_ns}
        records.append(dataclasses.replace(GOOD, **times, chunk_ns=(*(start_ns + 9 * MS,) * 3, start_ns + latency_ns)))
    return Measurement(0, "", False, 0.0, 0.0, tuple(records))


def test_a_client_that_keeps_up_is_valid():
    assert lag_of(measurement()).valid


@pytest.mark.parametrize(
    ("lags", "words"),
    [
        ({"first": [2.2] * 100}, "first-text lag p50 is 2.2 ms, at most 2 ms is allowed"),
        ({"first": LATE}, "first-text lag p99 is 6.0 ms, at most 5 ms is allowed"),
        ({"last": [2.6] * 100}, "last-text lag p50 is 2.2 ms, at most 2 ms is allowed"),
        ({"last": LATE}, "last-text lag p99 is 5.6 ms, at most 5 ms is allowed"),
        ({"dispatch": [1.2] * 100}, "dispatch lag p50 is 1.2 ms, at most 1 ms is allowed"),
        ({"dispatch": [0.2] * 95 + [900.0] * 5}, "dispatch lag p99 is 900.0 ms"),
    ],
)
def test_each_limit_is_seen(lags, words):
    """Control: each of the six limits by itself."""
    (problem,) = lag_of(measurement(**lags)).problems
    assert words in problem


def test_the_interval_of_looks_is_no_fault():
    """An idle client looks every millisecond, and what comes right after a look waits that long; also when there is one request."""
    assert lag_of(measurement([1.24], [1.24], [0.2])).valid
    assert not lag_of(measurement([2.24], [1.24], [0.2])).valid


def test_a_last_text_may_be_late_by_a_hundredth_of_its_latency():
    """15 ms of 2 s; of 1 s it is too much, and so is a first text that late."""
    assert lag_of(measurement(last=[15.0] * 100, latency_ns=2000 * MS)).valid
    assert not lag_of(measurement(last=[15.0] * 100, latency_ns=1000 * MS)).valid
    assert not lag_of(measurement(first=[15.0] * 100, latency_ns=2000 * MS)).valid


def test_nothing_sent_or_read_is_not_valid():
    run = measurement()
    silent = dataclasses.replace(run, records=tuple(dataclasses.replace(one, first_lag_ns=None) for one in run.records))
    assert lag_of(silent).problems == tuple(f"{name}-text lag is not known: no request came to a text" for name in ("first", "last"))
    assert "dispatch lag is not known: nothing was sent" in lag_of(dataclasses.replace(run, records=())).problems


def test_a_burst_is_sent_one_after_the_other():
    """Its dispatch lag is no fault; its texts' lags are."""
    late = [0.2 * index for index in range(100)]
    assert lag_of(measurement(dispatch=late, spacing_ns=0)).valid
    assert not lag_of(measurement(first=LATE, dispatch=late, spacing_ns=0)).valid
    assert not lag_of(measurement(dispatch=late)).valid
