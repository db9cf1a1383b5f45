"""A sweep against the scripted server, whose counters and log can lie: what is seen, what is resumed."""

import os
import shlex
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from conformance.bench import compiling, metrics
from conformance.bench.accuracy import stamps_of
from conformance.bench.cell_report import result_of
from conformance.bench.cells import Cell, digests_of, read_plan
from conformance.bench.compiling import FileWatch
from conformance.bench.load import Target
from conformance.bench.measurements import Measurements, Subject
from conformance.bench.options import SERVERS
from conformance.bench.servers import Running, launched, running_at
from conformance.bench.sweep import Sweep, overview
from conformance.bench.sweep_folder import SweepFolder
from conformance.bench.synthetic_sweep import TOKENS
from conformance.bench.validator import problems
from conformance.cli import main
from conformance.contract.errors import ContractError
from conformance.contract.progress import silent
from conformance.findings import Verdict
from fixtures.scripted_server import scripted_server

GROUP = """
[[groups]]
mode = "closed"
levels = [LEVEL]
input_tokens = [32]
output_tokens = 4
requests = REQUESTS
"""
HEAD = "seed = 1\nwarm_up_requests = 2\n"


def group(level: int, requests: int) -> str:
    return GROUP.replace("LEVEL", str(level)).replace("REQUESTS", str(requests))


ONE = HEAD + group(2, 4)
THREE = HEAD + group(1, 4) + group(2, 80) + group(3, 3)  # the second takes long enough to be stopped in
WHOLE = ["--url", "http://127.0.0.1:1", "--checkpoint", "fixtures/tiny-gemma4", "--out", "x"]
PATIENT = "client kept up"  # the one check that the other processes of a test machine can fail


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(address, log)"""
    log = tmp_path_factory.mktemp("server") / "server.log"
    with scripted_server(0.01, 0.002, log) as url:
        yield url, log


@pytest.fixture(autouse=True)
def honest(server, monkeypatch):
    """And quick to settle."""
    monkeypatch.setattr(compiling, "SETTLE_S", 0.02)
    monkeypatch.setattr(metrics, "POLL_S", 0.02)
    monkeypatch.setattr(metrics.settled_counters, "__defaults__", (1.0,))
    tell(server[0], "honest")


def tell(url: str, lie: str) -> None:
    urlopen(Request(f"{url}/lie/{lie}", method="PUT")).close()


def sweep_of(tmp_path, server, cells=ONE, *, model="plain", watched=True, seed=1, name="sweep", starts=1) -> Sweep:
    """Prompts of another seed each time: the server's prefix cache remembers."""
    toml = tmp_path / f"{name}.toml"
    toml.write_text(cells.replace("seed = 1", f"seed = {seed}"))
    digests = digests_of(read_plan(toml), TOKENS)
    folder = SweepFolder.begin(tmp_path / name, toml, Subject("", model, "0" * 64, "v6e-8"), starts, digests)

    @contextmanager
    def start():
        yield running_at(Target(server[0], model), server[1] if watched else None, None)

    return Sweep(folder, TOKENS, start)


def verdicts(folder: Measurements, cell=0) -> dict[str, Verdict]:
    result = result_of(folder, 1, folder.plan.cells[cell])
    return {check.name: check.verdict for check in result.checks if check.name not in (PATIENT, "speed of light")}


def test_an_honest_server_passes_every_check(tmp_path, server):
    """Counters, log, replies; warm-ups are in no figure, and the bundle is valid."""
    sweep = sweep_of(tmp_path, server, seed=11)
    sweep.run()
    folder = Measurements(sweep.folder.path)
    assert list(problems(folder)) == []
    assert set(verdicts(folder).values()) == {Verdict.PASS}
    measured = folder.read(1, folder.plan.cells[0])
    assert len(measured.run.records) == 4
    assert measured.record.warm_up_requests == 2
    assert measured.record.before.finished_requests == measured.record.after.finished_requests - 4


LIES = {
    "absent": ("prompt tokens", Verdict.NOT_PROVEN),
    "other_text": ("prompt tokens", Verdict.NOT_PROVEN),
    "no_prefix_counters": ("prefix cache", Verdict.NOT_PROVEN),
    "no_process_start": ("one start", Verdict.NOT_PROVEN),
    "dropped_prompt_tokens": ("prompt tokens", Verdict.FAIL),
    "fewer_generated": ("generation tokens", Verdict.FAIL),
    "compiles": ("no compilation", Verdict.FAIL),
    "says_running": ("nobody else", Verdict.FAIL),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_seen(tmp_path, server, lie):
    check, verdict = LIES[lie]
    sweep = sweep_of(tmp_path, server, seed=20 + list(LIES).index(lie))
    tell(server[0], lie)
    sweep.run()
    assert verdicts(sweep.folder)[check] is verdict


def test_repeated_prompts_are_seen_by_the_servers_cache(tmp_path, server):
    """A second sweep of the same seed on the same start: all its prompts hit."""
    for name, verdict in (("first", Verdict.PASS), ("second", Verdict.FAIL)):
        sweep = sweep_of(tmp_path, server, seed=12, name=name)
        sweep.run()
        assert verdicts(sweep.folder)["prefix cache"] is verdict


def test_a_warm_up_that_is_left_in_is_seen(tmp_path, server, monkeypatch):
    """Control: counters read before the warm-up instead of behind it."""
    sweep = sweep_of(tmp_path, server, seed=13)
    early = metrics.read_counters(server[0])
    later = iter([early])
    settled = metrics.settled_counters
    monkeypatch.setattr("conformance.bench.sweep.settled_counters", lambda url: next(later, None) or settled(url))
    sweep.run()
    found = verdicts(sweep.folder)
    assert (found["prompt tokens"], found["finished requests"]) == (Verdict.FAIL, Verdict.FAIL)


def test_a_log_that_nobody_knows_proves_nothing(tmp_path, server):
    sweep = sweep_of(tmp_path, server, seed=14, watched=False)
    sweep.run()
    assert verdicts(sweep.folder)["no compilation"] is Verdict.NOT_PROVEN


def test_a_series_ends_where_it_is_saturated(tmp_path):
    """A server that serves one at a time, 22 ms each, cannot do 100 requests/s; 200 is then left out with the reason."""
    cells = ONE.replace('"closed"', '"open"').replace("[2]", "[100, 200]").replace("requests = 4", "requests = 12")
    with scripted_server(0.01, 0.004) as url:
        sweep = sweep_of(tmp_path, (url, None), cells, model="one_at_a_time", watched=False)
        sweep.run()
        stamps = len(stamps_of(url))
    first, second = (result_of(sweep.folder, 1, cell) for cell in sweep.folder.plan.cells)
    assert first.saturated
    assert second.left_out == "the server is saturated at 100 requests/s already"
    assert stamps == 2 + 12


def test_a_stopped_sweep_goes_on_and_gives_the_same_bundle(tmp_path, server):
    """Ctrl-C in the second cell keeps the first one whole; then only the rest is sent. Control: a sweep that was not stopped."""
    whole = sweep_of(tmp_path, server, THREE, seed=15, name="whole")
    whole.run()
    sweep = sweep_of(tmp_path, server, THREE, seed=15, name="stopped")
    sent = len(stamps_of(server[0]))
    stop = threading.Thread(target=interrupt_after, args=(server[0], sent + 2 + 4 + 2 + 1))
    stop.start()
    with pytest.raises(KeyboardInterrupt):
        sweep.run()
    stop.join()
    kept = [cell.name for cell in sweep.folder.plan.cells if sweep.folder.has(1, cell)]
    assert kept == [sweep.folder.plan.cells[0].name]
    Measurements(sweep.folder.path)
    sent = len(stamps_of(server[0]))
    again = sweep_of(tmp_path, server, THREE, seed=15, name="stopped")
    assert "2 cells with 87 requests are left" in " ".join(overview(again.folder.plan, again.folder))
    again.run()
    assert len(stamps_of(server[0])) == sent + 82 + 5
    assert list(problems(again.folder)) == []
    one, other = (sweep.folder.manifest for sweep in (whole, again))
    assert (one.cells, one.subject, sorted(one.files)) == (other.cells, other.subject, sorted(other.files))


def interrupt_after(url: str, requests: int) -> None:
    while len(stamps_of(url)) < requests:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_server_that_ends_within_a_cell_leaves_no_cell(tmp_path, server):
    sweep = sweep_of(tmp_path, server, seed=16)

    def ended() -> None:
        raise ContractError("server: ended with exit code 1")

    @contextmanager
    def start():
        yield Running(Target(server[0], "plain"), {}, FileWatch(path=server[1]), ended)

    with pytest.raises(ContractError, match="ended with exit code 1"):
        Sweep(sweep.folder, TOKENS, start).run()
    assert sweep.folder.left(1) == sweep.folder.plan.cells


def test_a_model_that_the_server_refuses_ends_at_the_warm_up(tmp_path, server):
    sweep = sweep_of(tmp_path, server, model="error_500", seed=17)
    with pytest.raises(ContractError, match=r"no warm-up request has a whole reply: \{'http_500': 2\}"):
        sweep.run()


def test_sigterm_still_unwinds_after_a_cell(tmp_path, server):
    """The client's event loop resets it, and a server that was started here would be left behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        sweep_of(tmp_path, server, seed=18).run()
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_command_measures_a_replicate_a_call(tmp_path, server, capsys):
    """Two calls, two replicates of one server start: both are shown, and that they are of one start."""
    (tmp_path / "cells.toml").write_text(ONE.replace("seed = 1", "seed = 19"))
    call = ["sweep", "--url", server[0], "--model", "plain", "--checkpoint", "fixtures/tiny-gemma4", "--log", str(server[1])]
    call += ["--cells", str(tmp_path / "cells.toml"), "--out", str(tmp_path / "out")]
    for starts in ("1", "2"):
        assert main(call) in (1, 3)  # never 0: no machine was stated, and three starts are needed
        shown = capsys.readouterr()
        assert f"server starts: {starts}; 1 cells with 6 requests are left" in shown.err
    assert "2 replicates are of 1 server starts" in shown.out
    assert "NOT PROVEN: speed of light" in shown.out
    assert main(["sweep", "--show", str(tmp_path / "out")]) in (1, 3)
    assert main(["sweep", "--compare", str(tmp_path / "out"), str(tmp_path / "out")]) == 3
    assert "WITHHELD" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "http://127.0.0.1:1"], "--checkpoint is missing"),
        (["--checkpoint", "fixtures/tiny-gemma4", "--out", "x"], "--url (or --platform) is missing"),
        ([*WHOLE, "--machine", "v7"], "machine 'v7' is not one of v6e-8"),
        ([*WHOLE, "--cells", "none.toml"], "none.toml"),
        (["--show", "nothing"], "no manifest.json"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, capsys):
    assert main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") <= 2


def test_a_server_is_started_watched_and_stopped(tmp_path):
    """By `parity serve`, here with an interpreter that only pretends to have vLLM: its manifest is there, its log is read."""
    python = tmp_path / "python"
    fake = Path(__file__).parents[1] / "meta" / "fake_vllm.py"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(fake), "serves"])} "$@"\n')
    python.chmod(0o755)
    arguments = ["--checkpoint", "fixtures/tiny-gemma4", "--python", str(python), "--cache", str(tmp_path / "cache")]
    with launched(SERVERS["cpu"], arguments, tmp_path / "logs", silent) as running:
        running.check()
        assert running.manifest["settings"]["platform"] == "cpu"
        assert running.target.model == "merged"
        url = running.target.url
        urlopen(f"{url}/health").close()
        assert running.watch.on_cpu
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{url}/health")
    (log,) = (tmp_path / "logs").glob("*.log")
    assert "fake server" in log.read_text()


def test_no_cell_mixes_its_arrivals():
    """A cell has one mode: arrivals at a rate, all at once, or so many under way."""
    for mode, kind in (("open", "poisson"), ("burst", "burst"), ("closed", "closed")):
        assert Cell(mode, 2.0, 16, 4, "fixed", 4, seed=0).schedule.kind == kind
