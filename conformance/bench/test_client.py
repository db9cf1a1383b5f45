"""The client against a server that misbehaves on demand: everything is seen, counted, and sent once."""

import os
import resource
import signal
import threading
import time
from collections import Counter
from urllib.request import Request, urlopen

import numpy as np
import pytest

from conformance.bench.__main__ import main
from conformance.bench.accuracy import stamps_of
from conformance.bench.arrivals import Schedule, burst, closed_loop
from conformance.bench.client import measure
from conformance.bench.events import OK, outcomes, whole
from conformance.bench.figures import e2e_ms, figures_of, tpot_ms
from conformance.bench.files import read_run
from conformance.bench.lag import lag_of
from conformance.bench.load import Limits, Load, Target
from conformance.bench.prompts import draw_prompts
from conformance.contract.errors import ContractError
from fixtures.scripted_replies import SEPARATORS
from fixtures.scripted_server import FREEZE_S, scripted_server

FIRST_S, GAP_S, TOKENS, REQUESTS = 0.03, 0.005, 8, 4
PATIENT, IMPATIENT = Limits(total_s=60.0), Limits(total_s=1.0)


@pytest.fixture(scope="module")
def server():
    with scripted_server(FIRST_S, GAP_S) as url:
        yield url


def load(schedule: Schedule, max_tokens: int = TOKENS, *, fixed_length: bool = True) -> Load:
    return Load(schedule, draw_prompts(np.arange(100, 200, dtype=np.int32), len(schedule), 24, seed=1), max_tokens, fixed_length)


def forget_stamps(url: str) -> None:
    urlopen(Request(f"{url}/stamps", method="DELETE")).close()


def interrupt_after(url: str, requests: int, tokens: int = 0) -> None:
    """SIGINT to this process once the server has written so many tokens, or more, to so many requests."""
    while sum(len(stamp["token_ns"]) >= tokens for stamp in stamps_of(url)) < requests:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def measured(url: str, behaviour: str, schedule: Schedule | None = None, limits: Limits = PATIENT, **length):
    """The run, and what the server itself saw of it."""
    forget_stamps(url)
    result = measure(Target(url, behaviour), load(schedule or burst(REQUESTS), **length), limits)
    return result, stamps_of(url)


SEEN = {
    "plain": OK, "role_first": OK, "empty_chunks": OK, "several_tokens": OK, "separators": OK, "closes_keep_alive": OK,
    "cut_off": "cut_off", "no_done": "cut_off", "no_usage": "no_usage", "wrong_usage": "wrong_usage", "duplicate": "duplicated",
    "wrong_prompt_usage": "wrong_usage", "two_ends": "duplicated", "short": "short", "empty": "empty", "malformed": "malformed",
    "error_in_stream": "error_in_stream", "stall": "timeout", "never_ends": "timeout", "error_500": "http_500", "error_429": "http_429",
}  # fmt: skip


@pytest.mark.parametrize("behaviour", SEEN)
def test_every_misbehaviour_is_seen_and_sent_once(server, behaviour):
    """Each request has the outcome of its server's behaviour, and reached the server exactly once: nothing is sent again."""
    result, stamps = measured(server, behaviour, limits=IMPATIENT if SEEN[behaviour] == "timeout" else PATIENT)
    assert outcomes(result.records) == {SEEN[behaviour]: REQUESTS}
    assert Counter(tuple(stamp["prompt_head"]) for stamp in stamps) == Counter(
        tuple(row[:16].tolist()) for row in load(burst(REQUESTS)).prompts
    )
    assert not result.interrupted


@pytest.mark.parametrize("behaviour", ["role_first", "empty_chunks"])
def test_the_first_token_is_the_first_text(server, behaviour):
    """TTFT is after the server's own write of its first text. Control: the first event of any kind has no text, and came before
    that write, where the client kept up."""
    result, stamps = measured(server, behaviour)
    kept_up = max(record.first_lag_ns for record in result.records) < 0.5e9 * FIRST_S
    for record in result.records:
        stamp = next(one for one in stamps if one["prompt_head"] == load(burst(REQUESTS)).prompts[record.index][:16].tolist())
        assert record.first_token_ns >= stamp["token_ns"][0]
        assert record.chunk_characters[0] == 0
        assert record.chunk_ns[0] < stamp["token_ns"][0] or not kept_up


def test_tokens_are_not_chunks(server):
    """Eight tokens in two chunks, four gaps apart: the time per token is 4 / 7 of a gap, not 4 gaps."""
    result, _ = measured(server, "several_tokens")
    for record in result.records:
        assert len(record.chunk_ns) == 2
        assert tpot_ms(record) == pytest.approx((record.chunk_ns[1] - record.chunk_ns[0]) / 1e6 / 7)
    assert figures_of(result.records).output_lengths == {TOKENS: REQUESTS}


def test_separators_of_unicode_end_no_event(server):
    result, _ = measured(server, "separators")
    texts = tuple(len(f" t{index}{SEPARATORS}") for index in range(TOKENS))
    assert all(record.chunk_characters == texts for record in result.records)


def test_a_reply_of_its_own_length_is_whole_where_that_is_asked(server):
    """`short` ends by itself after half: a failure at a fixed length, a reply at a natural one."""
    result, _ = measured(server, "short", fixed_length=False)
    assert outcomes(result.records) == {OK: REQUESTS}
    assert figures_of(result.records).output_lengths == {TOKENS // 2: REQUESTS}


def test_a_stalled_server_shows_in_latency(server):
    """No coordinated omission: the server stands still at each request, one connection is allowed, and what waits behind it has its
    whole wait in its latency. Control: from the send time three freezes of the last one's would be hidden. And the run is invalid:
    it was the client's one connection that held the others back."""
    schedule = Schedule("poisson", np.arange(4) * 0.01, rate_per_s=100.0)
    result, _ = measured(server, "freeze", schedule, Limits(connections=1), max_tokens=2)
    records = result.records
    assert outcomes(records) == {OK: 4}
    for place, record in enumerate(records, 1):
        assert e2e_ms(record) > 1e3 * (place * FREEZE_S - 0.04)
    assert (records[-1].sent_ns - records[-1].scheduled_ns) / 1e6 > 1e3 * (3 * FREEZE_S - 0.04)
    assert "dispatch lag p50" in " ".join(lag_of(result).problems)


def test_an_open_loop_sends_while_the_server_stands_still(server):
    """With connections enough every request is sent at its time, and waits at the server, where the client keeps up."""
    schedule = Schedule("poisson", np.arange(4) * 0.02, rate_per_s=50.0)
    result, stamps = measured(server, "freeze", schedule, max_tokens=2)
    assert outcomes(result.records) == {OK: 4}
    sent_first = max(record.sent_ns for record in result.records) < min(record.first_token_ns for record in result.records)
    assert sent_first or max(record.first_lag_ns for record in result.records) > 0.5e9 * FREEZE_S
    assert e2e_ms(result.records[-1]) > 1e3 * (4 * FREEZE_S - 0.08)
    assert len(stamps) == 4


def test_a_closed_loop_keeps_its_concurrency(server):
    """Never more than 3 under way, and 3 at some time, all 12 done. Control: a burst has more."""
    result, _ = measured(server, "plain", closed_loop(3, 12))
    assert outcomes(result.records) == {OK: 12}
    assert most_under_way(result.records) == 3
    result, _ = measured(server, "plain", burst(12))
    assert most_under_way(result.records) > 3


def most_under_way(records) -> int:
    steps = sorted([(record.sent_ns, 1) for record in records] + [(record.end_ns, -1) for record in records])
    return int(np.cumsum([step for _, step in steps]).max())


def test_a_server_that_is_not_there_is_counted():
    result = measure(Target("http://127.0.0.1:9", "plain"), load(burst(3)))
    assert outcomes(result.records) == {"connect": 3}
    assert "127.0.0.1:9" in result.records[0].detail
    assert whole(result.records) == ()


def test_ctrl_c_ends_with_what_was_measured(server, tmp_path, checkpoint, capsys):
    """SIGINT in the middle of a run: exit code 130, records of what was done, under way and not sent, on disk and readable."""
    command = ["--url", server, "--model", "plain", "--checkpoint", checkpoint, "--rate", "20", "--requests", "300", "--out"]
    stopper = threading.Thread(target=interrupt_after, args=(server, 8, 32))
    forget_stamps(server)
    stopper.start()
    assert main([*command, str(tmp_path / "run")]) == 130
    stopper.join()
    _, run = read_run(tmp_path / "run")
    counted = outcomes(run.records)
    assert run.interrupted
    assert counted[OK] > 0 < counted["unsent"]
    assert set(counted) <= {OK, "interrupted", "unsent"}
    assert "stopped before its end" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_sent_after_ctrl_c(server):
    """Of thousands of requests that are all due by then, the server has seen those that have a send time, and no other."""
    forget_stamps(server)
    stopper = threading.Thread(target=interrupt_after, args=(server, 50))
    stopper.start()
    result = measure(Target(server, "plain"), load(Schedule("poisson", np.arange(3000) / 2000, rate_per_s=2000.0)))
    stopper.join()
    sent = sum(record.sent_ns is not None for record in result.records)
    assert result.interrupted
    assert 50 <= len(stamps_of(server)) <= sent
    assert outcomes(result.records)["unsent"] == 3000 - sent > 0


@pytest.fixture(scope="module")
def checkpoint(request) -> str:
    return str(request.config.rootpath / "fixtures" / "tiny-gemma4")


def test_the_command_measures_and_shows(server, tmp_path, checkpoint, capsys):
    """Two runs of one seed are sent the same schedule and prompts; --show prints what the run printed."""
    command = ["--url", server, "--model", "plain", "--checkpoint", checkpoint, "--rate", "50", "--requests", "20"]
    facts = []
    for name in ("one", "two"):
        code, printed = main([*command, "--out", str(tmp_path / name)]), capsys.readouterr().out
        assert "requests 20: 20 ok" in printed
        assert ("INVALID" in printed) == (code == 1)
        assert main(["--show", str(tmp_path / name)]) == code
        assert capsys.readouterr().out == printed
        facts.append(read_run(tmp_path / name)[0])
    assert facts[0].schedule_sha256 == facts[1].schedule_sha256
    assert facts[0].prompts_sha256 == facts[1].prompts_sha256


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--url", "127.0.0.1:8000"], "does not start with http"),
        (["--rate", "0"], "rate 0.0"),
        (["--output-tokens", "0"], "max_tokens = 0 is not at least 1"),
        (["--checkpoint", "nowhere"], "no tokenizer.json"),
    ],
)
def test_bad_input_is_named(tmp_path, checkpoint, capsys, changed, words):
    given = {"--url": "http://h:1", "--model": "m", "--checkpoint": checkpoint, "--rate": "9", "--out": str(tmp_path / "run")}
    given[changed[0]] = changed[1]
    assert main([word for pair in given.items() for word in pair]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_burst_needs_its_connections():
    with pytest.raises(ContractError, match="a burst of 8 requests needs as many connections; 4 are allowed"):
        measure(Target("http://h:1", "m"), load(burst(8)), Limits(connections=4))


def test_connections_need_open_files(monkeypatch):
    """Said before anything is sent, not by failed requests."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(ContractError, match="40 connections need as many open files; `ulimit -n` allows 100"):
        measure(Target("http://h:1", "m"), load(burst(40)), Limits(connections=40))
