"""What a client's run must keep, held against the stamps of the server that it measured: checks of the table `bench`.

The scripted server stamps its own writes on the clock that all processes of a machine share, so these bounds hold on a busy machine
too: a token is never seen before it was written.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from conformance.bench.events import whole
from conformance.bench.figures import figures_of, tpot_ms, ttft_ms
from conformance.bench.lag import P50_LIMIT_MS, P99_LIMIT_MS, lag_of
from conformance.bench.load import Load, Measurement
from conformance.bench.prompts import BLOCK_TOKENS
from conformance.contract.faults import BENCH
from conformance.findings import Finding
from conformance.judge import Judge

LATE_MS = 250.0  # a client whose requests reach the server so late at the median must say so


@dataclass(frozen=True, slots=True)
class Seen:
    """A run, what the server stamped of it, and the outcomes that its behaviour has."""

    run: Measurement
    load: Load
    stamps: list[dict]
    outcomes: dict[str, int]

    def written(self) -> Iterator[tuple]:
        """(record, the server's ns of each text) of every whole reply."""
        stamps = {tuple(stamp["prompt_head"]): stamp["token_ns"] for stamp in self.stamps}
        for record in whole(self.run.records):
            yield record, stamps[_head(self.load.prompts[record.index])]


def _head(prompt: np.ndarray) -> tuple[int, ...]:
    return tuple(prompt[:BLOCK_TOKENS].tolist())


def outcomes(judge: Judge, seen: Seen) -> None:
    """Every reply is called what it was."""
    found = figures_of(seen.run.records).outcomes
    for name in sorted(set(found) | set(seen.outcomes)):
        judge.same(f"{name}, replies", found.get(name, 0), seen.outcomes.get(name, 0))


def sent_once(judge: Judge, seen: Seen) -> None:
    """Every request reaches the server once."""
    heads = Counter(tuple(stamp["prompt_head"]) for stamp in seen.stamps)
    for index, prompt in enumerate(seen.load.prompts):
        judge.same(f"request {index}, times", heads[_head(prompt)], 1)


def whole_replies_alone(judge: Judge, seen: Seen) -> None:
    """Only whole replies have latencies."""
    figures = figures_of(seen.run.records)
    judge.same("replies with a latency", figures.ttft_ms.n, figures.outcomes.get("ok", 0))


def first_token(judge: Judge, seen: Seen) -> None:
    """No first token is seen before the server has written it."""
    judge.measure_in("ms")
    for record, token_ns in seen.written():
        judge.within(f"request {record.index}", max(0, token_ns[0] - record.first_token_ns) / 1e6, P50_LIMIT_MS)


def from_the_schedule(judge: Judge, seen: Seen) -> None:
    """A time to first token is at least that from the scheduled arrival to the server's write."""
    judge.measure_in("ms")
    for record, token_ns in seen.written():
        least_ms = (token_ns[0] - record.scheduled_ns) / 1e6
        judge.within(f"request {record.index}", max(0.0, least_ms - ttft_ms(record)), P50_LIMIT_MS)


def time_per_token(judge: Judge, seen: Seen) -> None:
    """The time per output token is the server's, over its own count of tokens, at the median."""
    judge.measure_in("ms")
    errors = [
        abs(tpot_ms(record) - (token_ns[-1] - token_ns[0]) / 1e6 / (record.usage_completion_tokens - 1))
        for record, token_ns in seen.written()
        if record.usage_completion_tokens > 1
    ]
    if errors:
        judge.within("median", float(np.median(errors)), P99_LIMIT_MS)


def lag_is_said(judge: Judge, seen: Seen) -> None:
    """A run whose requests reach the server late calls itself invalid for it."""
    received = {tuple(stamp["prompt_head"]): stamp["received_ns"] for stamp in seen.stamps}
    late_ms = [(received[_head(seen.load.prompts[one.index])] - one.scheduled_ns) / 1e6 for one in seen.run.records]
    says = any("dispatch" in problem for problem in lag_of(seen.run).problems)
    judge.same("late or said", bool(np.median(late_ms) <= LATE_MS or says), True)


OF_EVERY_RUN = (outcomes, sent_once, whole_replies_alone, first_token, from_the_schedule, time_per_token)
OF_AN_OPEN_LOOP = (*OF_EVERY_RUN, lag_is_said)
CHECKS = {one.__name__.replace("_", " "): one for one in OF_AN_OPEN_LOOP}


def judged(seen: Seen) -> tuple[Finding, ...]:
    """A finding of every check that the run has something for, in their order."""
    wanted = OF_AN_OPEN_LOOP if seen.load.schedule.kind == "poisson" else OF_EVERY_RUN
    return tuple(finding for name, check in CHECKS.items() if check in wanted and (finding := _finding(name, check, seen)))


def _finding(name: str, check: Callable, seen: Seen) -> Finding | None:
    judge = Judge(BENCH, name, check.__doc__.splitlines()[0])
    check(judge, seen)
    return judge.finding if judge.measurements else None
