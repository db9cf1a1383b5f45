"""The comparison itself: what is measured of a tool is what the server stamped, and a tool that errs is seen."""

import dataclasses
import sys

import numpy as np
import pytest

from conformance.bench import compare_clients
from conformance.bench.compare_clients import errors_of, replies_table
from conformance.bench.tool_runs import Run, matched, run_tool
from conformance.bench.tools import GUIDELLM, OWN, Seen
from conformance.contract.errors import ContractError
from fixtures.scripted_replies import MIXED
from fixtures.scripted_server import Stamp

MS = 1_000_000
STAMPS = [
    Stamp([index], "plain", index * 10 * MS, [(index * 10 + after) * MS for after in (50, 60, 70)]) for index in range(5)
]
EXACT = [Seen(stamp.received_ns - 1000, stamp.ttft_ms, stamp.tpot_ms) for stamp in STAMPS]


def test_a_tool_that_says_what_the_server_did_has_no_error():
    errors = errors_of(Run(EXACT[::-1], STAMPS, 0.0, 0.0))
    assert errors.ttft_ms.max() == errors.tpot_ms.max() == 0
    assert errors.rate_per_s == pytest.approx(100)
    assert errors.held(100)
    assert not errors.held(1200)  # five requests say little of a rate: 98 % - 2 / sqrt 5


@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms"])
def test_a_tool_that_errs_is_seen(name):
    """Control: 7 ms too much or too little are an error of 7 ms, and a rate is not held with them."""
    for wrong in (7.0, -7.0):
        seen = [dataclasses.replace(one, **{name: getattr(one, name) + wrong}) for one in EXACT]
        errors = errors_of(Run(seen, STAMPS, 0.0, 0.0))
        assert getattr(errors, name) == pytest.approx(np.full(5, 7.0))
        assert errors.held(100) == (name == "tpot_ms")


def test_requests_that_overlap_keep_their_order():
    """All are sent before the server has the first of them."""
    seen = [dataclasses.replace(one, start_ns=index - 100 * MS) for index, one in enumerate(EXACT)]
    assert [stamp.prompt_head for _, stamp in matched(Run(seen, STAMPS, 0.0, 0.0))] == [[0], [1], [2], [3], [4]]


def test_a_missing_reply_is_not_compared():
    """Replies that failed leave the others at their own request."""
    run = Run([EXACT[0], EXACT[3]], STAMPS, 0.0, 0.0)
    assert [stamp.prompt_head for _, stamp in matched(run)] == [[0], [3]]
    with pytest.raises(ContractError, match="2 successes of 5 requests"):
        errors_of(run)


def test_what_each_tool_calls_a_success_is_counted_by_behaviour(monkeypatch):
    """Two rounds of the server's behaviours: one tool takes every reply, one those that are right, and 49 ms too early after a role."""
    times = [200 * MS * index for index in range(2 * len(MIXED))]
    stamps = [Stamp([], MIXED[k % len(MIXED)], at, [at + 50 * MS, at + 60 * MS]) for k, at in enumerate(times)]
    every = [Seen(stamp.received_ns - MS, 1.0 if stamp.model == "role_first" else 50.0, 10.0) for stamp in stamps]
    right = [one for one, stamp in zip(every, stamps, strict=True) if stamp.model in ("plain", "role_first")]
    runs = iter([Run(every, stamps, 0.0, 0.0), Run(right, stamps, 0.0, 0.0)])
    monkeypatch.setattr(compare_clients, "run_tool", lambda *_: next(runs))
    head, _, *rows = replies_table([(OWN, ""), (GUIDELLM, "")])
    called = {name: cells for name, *cells in (row.strip("| ").split(" | ") for row in rows)}
    assert head == "| server | this client | guidellm |"
    assert list(called) == list(MIXED)
    assert called["plain"] == ["2 of 2, TTFT +0.0 ms"] * 2
    assert called["role_first"] == ["2 of 2, TTFT -49.0 ms"] * 2
    assert called["error_500"] == ["2 of 2, TTFT +0.0 ms", "0 of 2"]


def test_a_tool_is_run_and_read():
    """This client as a tool, in a process of its own: each request once, with its times, CPU and memory."""
    run = run_tool(OWN, sys.executable, 50.0, 20)
    assert len(run.seen) == len(run.stamps) == 20
    assert errors_of(run).ttft_ms.max() < 1e3 * max(one.ttft_ms for one in run.seen)
    assert run.cpu_s > 0 < run.memory_mib


def test_a_tool_that_breaks_is_named():
    command = ["-c", "import sys; sys.exit('out of ideas')"]
    broken = dataclasses.replace(OWN, name="a tool", command=lambda python, _: [python, *command], measured=(0,))
    with pytest.raises(ContractError, match="a tool ended with 1: out of ideas"):
        run_tool(broken, sys.executable, 50.0, 5)


def test_a_tool_without_its_environment_is_named(capsys):
    """Said, not left out in silence."""
    assert compare_clients.installed([(OWN, sys.executable), (GUIDELLM, "/nowhere/python")]) == [(OWN, sys.executable)]
    assert "guidellm is not measured: no /nowhere/python" in capsys.readouterr().err
