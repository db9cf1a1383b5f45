"""Results of other load generators: what their files say, and, by name, what they can't show."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from conformance.bench.cells import Cell
from conformance.bench.figures import P99_REQUESTS
from conformance.bench.speed_of_light import Machine, Model, bound_check, bounds_of
from conformance.bench.validity import Check
from conformance.contract.errors import ContractError
from conformance.findings import Verdict

# No tool's file has these. Each is a check of a sweep, so each is NOT PROVEN of an import.
NOT_SHOWN = {
    "client kept up": "lags of the client are not in the file",
    "prompts": "neither prompts nor a digest of prompts and schedule are in the file",
    "whole replies": "replies that are cut off, short, duplicated or empty count as successes",
    "prompt tokens": "the server's counters are not in the file",
    "prefix cache": "the server's counters are not in the file",
    "no compilation": "the server's log is not in the file",
    "server starts": "one run of one start",
}
FROM_SEND = {"latency": "times count from the send, not from the scheduled arrival: a stalled server is hidden"}


@dataclass(frozen=True, slots=True)
class Imported:
    """One run of a tool. Latencies: percentile name -> ms, as the tool reports them; None: not in the file."""

    tool: str
    mode: str  # open, closed, burst, or what the tool calls it
    level: float | None
    requests: int
    failed: int | None
    input_tokens: float | None
    output_tokens: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    ttft_ms: dict[str, float] = field(default_factory=dict)
    tpot_ms: dict[str, float] = field(default_factory=dict)
    e2e_ms: dict[str, float] = field(default_factory=dict)
    not_proven: dict[str, str] = field(default_factory=dict)

    def checks(self, machine: Machine | None, model: Model | None) -> tuple[Check, ...]:
        """All that a sweep would have checked; the speed of light is the one that a file alone can fail."""
        shown = [Check(name, Verdict.NOT_PROVEN, reason) for name, reason in self.not_proven.items()]
        if self.failed:
            shown.append(Check("failures", Verdict.FAIL, f"{self.failed} of {self.requests} requests failed"))
        return (*shown, *self._speed(machine, model))

    def _speed(self, machine: Machine | None, model: Model | None) -> list[Check]:
        if machine is None or model is None or not self.input_tokens or not self.output_tokens:
            return [Check("speed of light", Verdict.NOT_PROVEN, "no machine, model or lengths (--machine, --checkpoint)")]
        lengths = round(self.input_tokens), round(self.output_tokens)
        cell = Cell("burst", self.requests, *lengths, "natural", self.requests, seed=0)  # the most at once: the most generous bound
        least = bounds_of(machine, model, cell, self.output_tokens)
        found = [("TTFT", self.ttft_ms, least.ttft_ms), ("TPOT", self.tpot_ms, least.tpot_ms)]
        checks = [bound_check(f"{name} p50", values["p50"], bound, "ms") for name, values, bound in found if "p50" in values]
        if self.requests_per_s is not None:
            checks.append(bound_check("throughput", self.requests_per_s, least.requests_per_s, "requests/s", is_most=True))
        return checks


def read_import(path: Path) -> tuple[Imported, ...]:
    """The tool is told by its own keys; guidellm's file holds several runs."""
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ContractError(f"import {path}: {error}") from error
    keys = set(values) if isinstance(values, dict) else set()
    reader = next((read for key, read in READERS.items() if key in keys), None)
    if reader is None:
        raise ContractError(f"import {path}: not of vllm bench serve, guidellm or aiperf: it has none of the keys {', '.join(READERS)}")
    try:
        return reader(values)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ContractError(f"import {path}: not as its tool writes it: {type(error).__name__}: {error}") from error


def _vllm(values: dict) -> tuple[Imported, ...]:
    """vllm/benchmarks/serve.py, 0.32. `request_rate` is a number or "inf"; TPOT and TTFT from the send."""
    rate, places = values["request_rate"], values.get("max_concurrency")
    finite = rate not in ("inf", float("inf"))
    mode, level = ("closed", places) if places else ("open", rate) if finite else ("burst", values["num_prompts"])
    completed = values["completed"]
    names = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2el"}
    latencies = {ours: _vllm_percentiles(values, theirs) for ours, theirs in names.items()}
    if not latencies["e2e_ms"] and (each_s := values.get("latencies")):  # kept for each request, summed up only when it is asked to
        latencies["e2e_ms"] = {"p50": 1e3 * float(np.median(each_s))}
    return (
        _imported(
            "vllm bench serve", mode=mode, level=level, requests=values["num_prompts"], failed=values.get("failed"),
            input_tokens=values["total_input_tokens"] / completed, output_tokens=values["total_output_tokens"] / completed,
            requests_per_s=values["request_throughput"], output_tokens_per_s=values["output_throughput"], **latencies,
        ),
    )  # fmt: skip


def _vllm_percentiles(values: dict, of: str) -> dict[str, float]:
    found = {"p50": values.get(f"median_{of}_ms")} | {part: values.get(f"{part}_{of}_ms") for part in ("p90", "p95", "p99")}
    return {part: value for part, value in found.items() if value is not None}


def _guidellm(values: dict) -> tuple[Imported, ...]:
    """guidellm 0.8.1, benchmarks.json: the distributions of its successful requests; request latency is in seconds."""
    return tuple(_guidellm_run(benchmark) for benchmark in values["benchmarks"])


def _guidellm_run(benchmark: dict) -> Imported:
    metrics, strategy = benchmark["metrics"], benchmark["config"]["strategy"]
    totals, good = metrics["request_totals"], {name: metrics[name]["successful"] for name in GUIDELLM}
    level = strategy.get("rate") or strategy.get("streams") or strategy.get("max_concurrency")
    return _imported(
        "guidellm", mode=strategy["type_"], level=level, requests=totals["total"], failed=totals["errored"] + totals["incomplete"],
        input_tokens=good["prompt_token_count"]["mean"], output_tokens=good["output_token_count"]["mean"],
        requests_per_s=good["requests_per_second"]["mean"], output_tokens_per_s=good["output_tokens_per_second"]["mean"],
        ttft_ms=_percentiles(good["time_to_first_token_ms"]["percentiles"]),
        tpot_ms=_percentiles(good["inter_token_latency_ms"]["percentiles"]),  # its own TPOT divides the whole latency by all tokens
        e2e_ms=_percentiles(good["request_latency"]["percentiles"], factor=1e3),
    )  # fmt: skip


GUIDELLM = (
    "prompt_token_count", "output_token_count", "requests_per_second", "output_tokens_per_second", "time_to_first_token_ms",
    "inter_token_latency_ms", "request_latency",
)  # fmt: skip


def _aiperf(values: dict) -> tuple[Imported, ...]:
    """aiperf 0.13, profile_export_aiperf.json: one object a metric, percentiles beside its unit and average."""

    def average(name: str) -> float | None:
        return values[name]["avg"] if name in values else None

    rate, places = _aiperf_load(values.get("input_config", {}))
    mode, level = ("open", rate) if rate else ("closed", places)
    failed = average("error_request_count") or 0
    return (
        _imported(
            "aiperf", mode=mode, level=level, requests=int(average("request_count") + failed), failed=int(failed),
            input_tokens=average("input_sequence_length"), output_tokens=average("output_sequence_length"),
            requests_per_s=average("request_throughput"), output_tokens_per_s=average("output_token_throughput"),
            ttft_ms=_percentiles(values.get("time_to_first_token", {})), tpot_ms=_percentiles(values.get("inter_token_latency", {})),
            e2e_ms=_percentiles(values.get("request_latency", {})),
        ),
    )  # fmt: skip


def _aiperf_load(config: dict) -> tuple[float | None, float | None]:
    """(rate, requests under way) of the measured phase, which comes last; before 0.12 there was one load generator."""
    phase, before = (config.get("phases") or [{}])[-1], config.get("loadgen", {})
    return phase.get("rate") or before.get("request_rate"), phase.get("concurrency") or before.get("concurrency")


def _percentiles(values: dict, factor: float = 1.0) -> dict[str, float]:
    return {part: factor * values[part] for part in ("p50", "p90", "p95", "p99") if part in values}


def _imported(tool: str, **values) -> Imported:
    """p99 of too few requests is dropped, with the reason."""
    not_proven = NOT_SHOWN | FROM_SEND
    if values["requests"] < P99_REQUESTS:
        not_proven = not_proven | {"p99": f"{values['requests']} requests; {P99_REQUESTS} are needed"}
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            values[name] = {part: value for part, value in values[name].items() if part != "p99"}
    return Imported(tool, **values, not_proven=not_proven)


# Key of the file -> its tool, the first that fits: vLLM's file has a `request_throughput` too.
READERS: dict[str, Callable[[dict], tuple[Imported, ...]]] = {
    "total_input_tokens": _vllm, "benchmarks": _guidellm, "request_throughput": _aiperf,
}  # fmt: skip
