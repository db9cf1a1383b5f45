"""Records made by hand: a whole reply, and one of every kind that is not. For tests."""

import dataclasses

from conformance.bench.events import Record

MS = 1_000_000
GOOD = Record(
    index=0, prompt_tokens=16, max_tokens=4, fixed_length=True, scheduled_ns=0, sent_ns=MS, headers_ns=5 * MS,
    chunk_ns=(10 * MS, 20 * MS, 30 * MS, 40 * MS), chunk_characters=(3, 3, 3, 3), chunk_tokens=(-1, -1, -1, -1), end_ns=41 * MS,
    status=200, finish_reasons=("length",), done_events=1, usage_prompt_tokens=16, usage_completion_tokens=4,
    first_lag_ns=MS // 5, last_lag_ns=MS // 5,
)  # fmt: skip


def but(**changes) -> Record:
    return dataclasses.replace(GOOD, **changes)


LISTED = {"chunk_tokens": (1, 1, 1, 1)}  # what vLLM says with return_token_ids
WRONG = {
    "nothing was sent": ("unsent", but(scheduled_ns=None, sent_ns=None)),
    "stopped while it waited": ("unsent", but(sent_ns=None, error="interrupted")),
    "stopped under way": ("interrupted", but(error="interrupted", done_events=0)),
    "no connection": ("connect", but(error="connect", status=None)),
    "closed before headers": ("disconnected", but(error="disconnected", status=None)),
    "closed in the middle": ("cut_off", but(error="disconnected", done_events=0)),
    "time-out": ("timeout", but(error="timeout", done_events=0)),
    "malformed": ("malformed", but(error="malformed", done_events=0)),
    "error in the stream": ("error_in_stream", but(error="error_in_stream", done_events=0)),
    "status": ("http_503", but(status=503, chunk_ns=(), chunk_characters=(), chunk_tokens=())),
    "no DONE": ("cut_off", but(done_events=0)),
    "no finish_reason": ("cut_off", but(finish_reasons=())),
    "no usage": ("no_usage", but(usage_prompt_tokens=None, usage_completion_tokens=None)),
    "two ends": ("duplicated", but(done_events=2)),
    "two finish reasons": ("duplicated", but(finish_reasons=("length", "length"))),
    "a chunk twice": ("duplicated", but(chunk_ns=(1, 2, 3, 4, 5), chunk_characters=(3,) * 5, chunk_tokens=(-1,) * 5)),
    "ids twice": ("duplicated", but(chunk_tokens=(2, 1, 1, 1))),
    "other prompt tokens": ("wrong_usage", but(usage_prompt_tokens=25)),
    "more tokens than asked for": ("wrong_usage", but(usage_completion_tokens=5)),
    "fewer tokens than texts": ("wrong_usage", but(usage_completion_tokens=3)),
    "more tokens than ids": ("wrong_usage", but(chunk_tokens=(1, 1, 1, 0))),
    "no text": ("empty", but(chunk_characters=(0, 0, 0, 0))),
    "no token": ("empty", but(usage_completion_tokens=0, chunk_characters=(0, 0, 0, 0))),
    "short": ("short", but(usage_completion_tokens=2, chunk_ns=(1, 2), chunk_characters=(3, 3), chunk_tokens=(-1, -1))),
}
