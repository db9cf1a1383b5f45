"""Results of other tools are read as they are, and what they cannot show is listed. Their files here were made by hand, but for
vllm-0.32.json: `vllm bench serve` 0.32.0 wrote it of six requests to the scripted server (the tokenizer's path was shortened)."""

import json
from pathlib import Path

import pytest

from conformance.bench.imports import read_import
from conformance.bench.speed_of_light import Model, read_machine
from conformance.cli import main
from conformance.contract.errors import ContractError
from conformance.findings import Verdict

RESULTS = Path(__file__).parents[2] / "fixtures" / "bench_results"
PAPER = Model(parameters=31e9, weight_bytes=62e9)


def one(name):
    (found,) = read_import(RESULTS / name)
    return found


def test_vllm_bench_serve():
    """A rate, latencies in ms; p99 of 30 requests is not one."""
    found = one("vllm.json")
    assert (found.tool, found.mode, found.level, found.requests, found.failed) == ("vllm bench serve", "open", 4.0, 30, 1)
    assert (found.input_tokens, found.output_tokens, found.output_tokens_per_s) == (16_384, 512, 1187.84)
    assert (found.ttft_ms, found.tpot_ms, found.e2e_ms) == ({"p50": 62.0}, {"p50": 13.5}, {})
    assert found.not_proven["p99"] == "30 requests; 459 are needed"


def test_a_file_that_vllm_wrote():
    """The server's first token comes after 50 ms, 31 others 10 ms apart: 360 ms in all at the least."""
    found = one("vllm-0.32.json")
    assert (found.mode, found.level, found.requests, found.failed, found.output_tokens) == ("open", 20.0, 6, 0, 32)
    assert 50 <= found.ttft_ms["p50"] < 360 <= found.e2e_ms["p50"]
    assert found.tpot_ms["p50"] >= 10


def test_guidellm():
    """Latency in seconds there; its TPOT holds the first token, so its inter-token latency is what is called TPOT here."""
    found = one("guidellm.json")
    assert (found.tool, found.mode, found.level, found.requests, found.failed) == ("guidellm", "concurrent", 4, 484, 4)
    assert found.tpot_ms == {"p50": 25.0, "p90": 27.0, "p95": 28.0, "p99": 30.0}
    assert found.e2e_ms["p50"] == 1900.0
    assert "p99" not in found.not_proven


def test_aiperf():
    found = one("aiperf.json")
    assert (found.tool, found.mode, found.level, found.requests, found.failed) == ("aiperf", "open", 4.0, 500, 10)
    assert (found.input_tokens, found.output_tokens, found.ttft_ms["p99"]) == (1024, 256, 150.0)


@pytest.mark.parametrize("name", ["vllm.json", "guidellm.json", "aiperf.json"])
def test_what_a_file_cannot_show_is_not_proven(name):
    """Prompts, counters, log, lags: none of them passes."""
    checks = {check.name: check.verdict for check in one(name).checks(None, None)}
    assert {checks[part] for part in ("client kept up", "prompts", "prefix cache", "no compilation", "latency", "speed of light")} == {
        Verdict.NOT_PROVEN
    }
    assert Verdict.PASS not in checks.values()


def test_the_published_prefill_is_impossible_in_an_import_too():
    """62 ms for 16k tokens on v6e-8; control: guidellm's 1,024 tokens in 300 ms are possible."""
    checks = {check.name: check.verdict for check in one("vllm.json").checks(read_machine("v6e-8"), PAPER)}
    assert checks["speed of light, TTFT p50"] is Verdict.FAIL
    assert checks["speed of light, TPOT p50"] is Verdict.PASS
    possible = {check.name: check.verdict for check in one("guidellm.json").checks(read_machine("v6e-8"), PAPER)}
    assert [possible[f"speed of light, {name}"] for name in ("TTFT p50", "TPOT p50", "throughput")] == [Verdict.PASS] * 3


def test_a_burst_and_a_closed_loop_of_vllm_are_told_apart(tmp_path):
    values = json.loads((RESULTS / "vllm.json").read_text())
    for change, mode, level in (({"request_rate": "inf"}, "burst", 30), ({"max_concurrency": 8}, "closed", 8)):
        (tmp_path / "run.json").write_text(json.dumps(values | change))
        (found,) = read_import(tmp_path / "run.json")
        assert (found.mode, found.level) == (mode, level)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Expecting property name"),
        ('{"a": 1}', "not of vllm bench serve, guidellm or aiperf"),
        ('{"total_input_tokens": 1}', "not as its tool writes it: KeyError: 'request_rate'"),
        ('{"benchmarks": [3]}', "not as its tool writes it: TypeError"),
    ],
)
def test_another_file_is_refused(tmp_path, text, words):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ContractError, match=r"import .*run\.json") as error:
        read_import(path)
    assert words in str(error.value)


def test_the_command_lists_it(capsys):
    assert main(["sweep", "--import", str(RESULTS / "guidellm.json")]) == 1  # replies are missing
    printed = capsys.readouterr().out
    assert "guidellm: concurrent 4: 484 requests, failed 4" in printed
    assert "NOT PROVEN: prefix cache" in printed
