"""The client's own error, against a server that stamps its writes on the shared clock: small, or the run calls itself invalid."""

import asyncio
import time
from dataclasses import dataclass

import numpy as np
import pytest

from conformance.bench import client
from conformance.bench.accuracy import errors_of, stamps_of
from conformance.bench.arrivals import poisson
from conformance.bench.client import measure
from conformance.bench.figures import figures_of
from conformance.bench.lag import P50_LIMIT_MS, P99_LIMIT_MS, lag_of
from conformance.bench.load import Load, Measurement, Target
from conformance.bench.prompts import BLOCK_TOKENS, draw_prompts
from conformance.bench.watch import WatchedSelector
from fixtures.scripted_server import scripted_server

RATE_PER_S, REQUESTS, TOKENS = 200.0, 460, 32
FIRST_S, GAP_S = 0.05, 0.01


@pytest.fixture(scope="module")
def server():
    with scripted_server(FIRST_S, GAP_S) as url:
        yield url


@dataclass(frozen=True, slots=True)
class Measured:
    run: Measurement
    load: Load
    stamps: list[dict]


@pytest.fixture(scope="module")
def measured(server):
    prompts = draw_prompts(np.arange(1000, 2000, dtype=np.int32), REQUESTS, 128, seed=1)
    load = Load(poisson(RATE_PER_S, REQUESTS, seed=1), prompts, TOKENS)
    return Measured(measure(Target(server, "plain"), load), load, stamps_of(server))


def within_limits(errors_ms: np.ndarray) -> bool:
    return bool(np.percentile(errors_ms, 50) <= P50_LIMIT_MS and np.percentile(errors_ms, 99) <= P99_LIMIT_MS)


def test_times_are_right_or_the_run_is_invalid(measured, record_property):
    """TTFT and TPOT at 200 requests/s of 32 chunks: off by at most 1 ms at p50 and 5 ms at p99, unless the run calls itself invalid."""
    errors = errors_of(measured.run.records, measured.load.prompts, measured.stamps)
    for name, values in (("ttft", errors.ttft_ms), ("tpot", errors.tpot_ms)):
        record_property(f"{name}_error_p99_ms", float(np.percentile(values, 99)))
        assert within_limits(values) or not lag_of(measured.run).valid
    assert figures_of(measured.run.records).outcomes == {"ok": REQUESTS}
    assert (errors.ttft_ms >= 0).all(), "a token was seen before it was written: the clocks differ"


def unread_too_long(run: Measurement, prompts: np.ndarray, stamps: list[dict]) -> list[int]:
    """Requests whose first or last text has a time later, after the server's write of it was over, than the run says it can be."""
    written_ns = {tuple(stamp["prompt_head"]): stamp["written_ns"] for stamp in stamps}
    found = []
    for one in run.records:
        first_ns, *_, last_ns = written_ns[tuple(prompts[one.index][:BLOCK_TOKENS].tolist())]
        if one.first_token_ns - first_ns > one.first_lag_ns or one.last_token_ns - last_ns > one.last_lag_ns:
            found.append(one.index)
    return found


def test_no_reply_was_later_than_the_run_says(measured):
    """Not on average: each of them, from when the server's write was over."""
    assert unread_too_long(measured.run, measured.load.prompts, measured.stamps) == []


def test_cpu_is_measured(measured, record_property):
    """CPU seconds of the client's process are in the run; a run that took none was not measured."""
    record_property("cpu_s_per_1000_requests", 1e3 * measured.run.cpu_s / REQUESTS)
    assert 0 < measured.run.cpu_s < measured.run.records[-1].end_ns / 1e9


def test_another_token_time_is_seen(measured):
    """Control: TTFT from the second token, TPOT from one token too few, and replies taken for one another's, are all off."""
    errors = errors_of(measured.run.records, measured.load.prompts, measured.stamps)
    late = errors_of(measured.run.records, measured.load.prompts, [one | {"token_ns": one["token_ns"][1:]} for one in measured.stamps])
    assert np.median(np.abs(late.ttft_ms)) > 0.9e3 * GAP_S - np.median(errors.ttft_ms)
    turned = errors_of(measured.run.records, np.roll(measured.load.prompts, 1, axis=0), measured.stamps)
    assert not within_limits(np.abs(turned.ttft_ms))


@pytest.fixture
def measured_busily(server, monkeypatch):
    """Calls `measure` with a loop that is held for 10 to 50 ms again and again."""
    prompts = draw_prompts(np.arange(1000, 2000, dtype=np.int32), 40, 128, seed=1)
    send_all = client._Run._send_all

    async def busily(run, origin_ns):
        held = asyncio.create_task(_hold_the_loop())
        try:
            await send_all(run, origin_ns)
        finally:
            held.cancel()

    def measured() -> Measured:
        load, stamps_before = Load(poisson(50.0, 40, seed=1), prompts, TOKENS), len(stamps_of(server))
        return Measured(measure(Target(server, "plain"), load), load, stamps_of(server)[stamps_before:])

    monkeypatch.setattr(client._Run, "_send_all", busily)
    return measured


def test_a_client_that_is_busy_calls_its_run_invalid(measured_busily):
    """Control: it measures times that are off by more than the limits, and says so, of each reply no less than it was."""
    busy = measured_busily()
    assert not within_limits(errors_of(busy.run.records, busy.load.prompts, busy.stamps).ttft_ms)
    assert "first-text lag p99" in " ".join(lag_of(busy.run).problems)
    assert unread_too_long(busy.run, busy.load.prompts, busy.stamps) == []


def test_a_lag_from_the_last_look_says_too_little(measured_busily, monkeypatch):
    """Control: counted from the look that found them, replies were later than the run says."""
    monkeypatch.setattr(WatchedSelector, "unread_ns", lambda watch: watch._looks_ns[-2][1] - watch._looks_ns[-2][0])
    busy = measured_busily()
    assert unread_too_long(busy.run, busy.load.prompts, busy.stamps)


async def _hold_the_loop() -> None:
    """For irregular times: requests leave when the loop is free, and a reply that takes whole periods would find it free again."""
    lengths = np.random.default_rng(1)
    while True:
        time.sleep(lengths.uniform(0.01, 0.05))  # on purpose
        await asyncio.sleep(0.005)
