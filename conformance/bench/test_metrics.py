"""The server's counters against the client's: agreement, every way to lie, and what is not there."""

from dataclasses import replace

import pytest

from conformance.bench.metrics import Counters, counter_checks, parse_counters
from conformance.bench.synthetic import GOOD, but
from conformance.findings import Verdict

TEXT = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 10.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 6.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 4.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 1.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 9.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
"""
BEFORE = Counters("", 5, 5, 5, 0, 0, 0, 0, 1.0)
RECORDS = (GOOD,) * 4  # 16 tokens in, 4 out
AFTER = replace(BEFORE, prompt_tokens=5 + 64, generation_tokens=5 + 16, finished_requests=5 + 4)


def verdicts(before=BEFORE, after=AFTER, records=RECORDS):
    return {check.name: check.verdict for check in counter_checks(before, after, records)}


def test_engines_and_reasons_are_added_up():
    """But for requests that were aborted; what the text has not is None."""
    found = parse_counters(TEXT)
    assert (found.prompt_tokens, found.generation_tokens, found.finished_requests, found.waiting) == (16, 4, 3, 3)
    assert found.prefix_hits_tokens is None
    assert not found.is_idle
    assert parse_counters("other_total 1\n").problem


def test_honest_counters_pass():
    assert set(verdicts().values()) == {Verdict.PASS}


@pytest.mark.parametrize(
    ("check", "after"),
    [
        ("prompt tokens", replace(AFTER, prompt_tokens=5 + 60)),
        ("prompt tokens", replace(AFTER, prompt_tokens=5 + 64 + 16)),  # a warm-up that was left in
        ("generation tokens", replace(AFTER, generation_tokens=5 + 17)),
        ("finished requests", replace(AFTER, finished_requests=5 + 5)),
        ("prefix cache", replace(AFTER, prefix_queries_tokens=64, prefix_hits_tokens=1)),  # 1.6 %
        ("prefix cache", replace(AFTER, prefix_hits_tokens=16)),
        ("nobody else", replace(AFTER, running=1)),
        ("nobody else", replace(AFTER, waiting=1)),
        ("one start", replace(AFTER, process_start_s=2.0)),
    ],
)
def test_each_lie_fails_its_check_alone(check, after):
    found = verdicts(after=after)
    assert found.pop(check) is Verdict.FAIL
    assert set(found.values()) == {Verdict.PASS}


def test_a_hit_share_under_one_percent_passes():
    """The BOS that all prompts share is no repeated prompt."""
    assert verdicts(after=replace(AFTER, prefix_queries_tokens=1000, prefix_hits_tokens=9))["prefix cache"] is Verdict.PASS


@pytest.mark.parametrize("field", [name for name in Counters.__dataclass_fields__ if name != "problem"])
def test_a_counter_that_is_not_there_is_not_proven(field):
    """Never passed."""
    found = verdicts(replace(BEFORE, **{field: None}), replace(AFTER, **{field: None}))
    assert sorted(found.values()).count(Verdict.NOT_PROVEN) == 1
    assert Verdict.FAIL not in found.values()


def test_a_server_without_metrics_proves_nothing():
    none = Counters("no /metrics: status 404")
    checks = list(counter_checks(none, none, RECORDS))
    assert {check.verdict for check in checks} == {Verdict.NOT_PROVEN}
    assert {check.said for check in checks} == {"no /metrics: status 404"}


def test_counts_of_broken_replies_decide_nothing():
    """The server has counted some of a reply that broke off; how much nobody knows."""
    broken = (*RECORDS[:3], but(error="disconnected", done_events=0))
    assert verdicts(records=broken)["generation tokens"] is Verdict.INCONCLUSIVE
