"""A vLLM server's own counters, from `/metrics` (Prometheus text), before and after a cell, and whether they agree with the client."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from conformance.bench.events import OK, Record, whole
from conformance.bench.validity import Check
from conformance.contract.errors import ContractError
from conformance.findings import Verdict

TIMEOUT_S = 10.0
SETTLE_S = 30.0  # a server counts a request a little after it has sent its last token
POLL_S = 0.1
HIT_SHARE = 0.01  # of the queried prompt tokens may come from the prefix cache: unique prompts share at most their BOS
# Field -> sample. Values of several engines and finish reasons are added up. vLLM V1, vllm/v1/metrics/loggers.py (0.32).
SAMPLES = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "finished_requests": "vllm:request_success_total",
    "prefix_queries_tokens": "vllm:prefix_cache_queries_total",
    "prefix_hits_tokens": "vllm:prefix_cache_hits_total",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "process_start_s": "process_start_time_seconds",
}
ENDED_EARLY = ("abort", "error")  # finish reasons of requests that nobody has a whole reply of


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server says; None: it has no such sample. `problem`: why there is nothing at all."""

    problem: str = ""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    finished_requests: float | None = None
    prefix_queries_tokens: float | None = None
    prefix_hits_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    process_start_s: float | None = None

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting


def read_counters(url: str) -> Counters:
    """A server without /metrics, or with another text there, gives a `problem`."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/metrics", timeout=TIMEOUT_S) as answer:
            return parse_counters(answer.read().decode())
    except urllib.error.HTTPError as error:
        return Counters(f"no /metrics: status {error.code}")
    except OSError as error:
        raise ContractError(f"server {url}: no answer: {error}") from error
    except ValueError as error:
        return Counters(f"/metrics cannot be read: {error}")


def parse_counters(text: str) -> Counters:
    found: dict[str, float] = {}
    names = {sample: name for name, sample in SAMPLES.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in names and sample.labels.get("finished_reason") not in ENDED_EARLY:
                found[names[sample.name]] = found.get(names[sample.name], 0.0) + sample.value
    return Counters(**found) if found else Counters("/metrics has none of vLLM's samples")


def settled_counters(url: str, limit_s: float = SETTLE_S) -> Counters:
    """Read until nothing runs or waits and two readings agree, or the limit is over: the checks then see what did not settle."""
    end, last = time.monotonic() + limit_s, read_counters(url)
    while time.monotonic() < end:
        time.sleep(POLL_S)
        now = read_counters(url)
        if now.is_idle and now == last:
            return now
        last = now
    return last


def counter_checks(before: Counters, after: Counters, records: Sequence[Record]) -> Iterator[Check]:
    """The server's counts of the window against the client's own."""
    problem = before.problem or after.problem
    good = whole(tuple(records))
    ours = {
        "prompt_tokens": sum(record.prompt_tokens for record in records),
        "generation_tokens": sum(record.usage_completion_tokens for record in good),
        "finished_requests": len(good),
    }
    unsure = len(good) < len(records)
    for name, expected in ours.items():
        yield _agreement(name, problem, before, after, expected, unsure)
    yield _prefix_cache(problem, before, after)
    yield _alone(problem, before, after)
    yield _one_start(problem, before, after)


def _agreement(name: str, problem: str, before: Counters, after: Counters, expected: int, unsure: bool) -> Check:
    counted = _delta(name, before, after)
    label = name.replace("_", " ")
    if counted is None:
        return Check(label, Verdict.NOT_PROVEN, problem or f"the server has no {SAMPLES[name]}")
    said = f"server {counted:.0f}, client {expected}"
    if counted == expected:
        return Check(label, Verdict.PASS, said)
    if unsure:
        return Check(label, Verdict.INCONCLUSIVE, f"{said}, and not every reply was {OK}")
    return Check(label, Verdict.FAIL, f"{said}: {_likely(name, counted, expected)}")


def _likely(name: str, counted: float, expected: int) -> str:
    if counted < expected:
        return "prompt tokens were dropped" if name == "prompt_tokens" else "the server did less than the client saw"
    return "requests of somebody else, or of a warm-up, are in the window"


def _prefix_cache(problem: str, before: Counters, after: Counters) -> Check:
    queries, hits = (_delta(name, before, after) for name in ("prefix_queries_tokens", "prefix_hits_tokens"))
    if queries is None or hits is None:
        return Check("prefix cache", Verdict.NOT_PROVEN, problem or "the server has no counter of its prefix cache")
    if not queries:
        return Check("prefix cache", Verdict.FAIL if hits else Verdict.PASS, f"no queries, {hits:.0f} tokens hit")
    share = hits / queries
    verdict = Verdict.PASS if share < HIT_SHARE else Verdict.FAIL
    return Check("prefix cache", verdict, f"{share:.2%} of {queries:.0f} prompt tokens came from it (under {HIT_SHARE:.0%} is allowed)")


def _alone(problem: str, before: Counters, after: Counters) -> Check:
    gauges = [getattr(one, name) for one in (before, after) for name in ("running", "waiting")]
    if None in gauges:
        return Check("nobody else", Verdict.NOT_PROVEN, problem or "the server does not say what runs and waits")
    said = "before: {:.0f} running, {:.0f} waiting; after: {:.0f} and {:.0f}".format(*gauges)
    return Check("nobody else", Verdict.FAIL if any(gauges) else Verdict.PASS, said)


def _one_start(problem: str, before: Counters, after: Counters) -> Check:
    """A server that was started anew in between has lost its counts, and its caches are cold."""
    starts = before.process_start_s, after.process_start_s
    if None in starts:
        return Check("one start", Verdict.NOT_PROVEN, problem or f"the server has no {SAMPLES['process_start_s']}")
    verdict = Verdict.PASS if starts[0] == starts[1] else Verdict.FAIL
    return Check("one start", verdict, "process start {:.2f} and {:.2f}".format(*starts))


def _delta(name: str, before: Counters, after: Counters) -> float | None:
    values = getattr(before, name), getattr(after, name)
    return None if None in values else values[1] - values[0]
