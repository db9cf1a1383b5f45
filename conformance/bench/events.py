"""What happened to each request, as raw events: frozen records, from which every figure is computed later."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

# What ended a request other than a whole reply, as the client saw it.
Error = Literal["", "connect", "disconnected", "timeout", "malformed", "error_in_stream", "interrupted"]
OK, UNSENT, INTERRUPTED = "ok", "unsent", "interrupted"
# What `outcome` may say besides ok and http_<status>; the first two are the client's own doing, not failures of the server.
OUTCOMES = (
    UNSENT, INTERRUPTED, "connect", "disconnected", "timeout", "malformed", "error_in_stream", "cut_off", "no_usage", "duplicated",
    "wrong_usage", "empty", "short",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are CLOCK_MONOTONIC in ns, common to all processes of a machine; None: it did not come to that.

    `chunk_ns`, `chunk_characters`, `chunk_tokens` [chunks] have an entry for each event with a choice, empty texts included; tokens
    are -1 where the server does not list ids (vLLM does with `return_token_ids`). Chunks are not tokens.
    """

    index: int
    prompt_tokens: int  # ids sent
    max_tokens: int
    fixed_length: bool  # the reply must have exactly max_tokens
    scheduled_ns: int | None = None  # in a closed loop: when its place became free
    sent_ns: int | None = None
    headers_ns: int | None = None
    chunk_ns: tuple[int, ...] = ()
    chunk_characters: tuple[int, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    end_ns: int | None = None
    status: int | None = None
    finish_reasons: tuple[str, ...] = ()
    done_events: int = 0  # how often [DONE] came
    usage_prompt_tokens: int | None = None
    usage_completion_tokens: int | None = None
    first_lag_ns: int | None = None  # the most that the first text can have lain unread before its time
    last_lag_ns: int | None = None  # the same of the last event with a choice
    error: Error = ""
    detail: str = ""

    @property
    def first_token_ns(self) -> int | None:
        """When the first text that is not empty came. Role chunks and empty texts are no token."""
        return next((at for at, characters in zip(self.chunk_ns, self.chunk_characters, strict=True) if characters), None)

    @property
    def last_token_ns(self) -> int | None:
        """When the last event with a choice came: an end-of-sequence token has no text."""
        return self.chunk_ns[-1] if self.chunk_ns else None

    @property
    def outcome(self) -> str:
        """OK, http_<status>, or one of OUTCOMES: the first of these that is true of it."""
        if self.scheduled_ns is None or (self.sent_ns is None and self.error in ("", "interrupted")):
            return UNSENT
        if self.error == "disconnected" and self.status == 200:
            return "cut_off"
        if self.error:
            return self.error
        if self.status != 200:
            return f"http_{self.status}"
        return next((name for name, is_so in _REPLY if is_so(self)), OK)

    @property
    def _texts(self) -> int:
        """Counted in C: of a full sweep hundreds of millions are counted."""
        return len(self.chunk_characters) - self.chunk_characters.count(0)

    @property
    def _lists_tokens(self) -> bool:
        return bool(self.chunk_tokens) and min(self.chunk_tokens) >= 0

    @property
    def _least_tokens(self) -> int:
        """Tokens that came at the least: the ids where they are listed, else one for each text."""
        return sum(self.chunk_tokens) if self._lists_tokens else self._texts


def outcomes(records: tuple[Record, ...]) -> dict[str, int]:
    """Outcome -> how many, most frequent first."""
    return dict(Counter(record.outcome for record in records).most_common())


def whole(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Those with a whole reply, the only ones whose times are ever averaged."""
    return tuple(record for record in records if record.outcome == OK)


def _duplicated(record: Record) -> bool:
    """A second end, or more came than `usage` counts. At a fixed length `usage` must be right for that, else it is the wrong one."""
    right = not record.fixed_length or record.usage_completion_tokens == record.max_tokens
    return len(record.finish_reasons) > 1 or record.done_events > 1 or (right and record._least_tokens > record.usage_completion_tokens)


def _wrong_usage(record: Record) -> bool:
    """Other prompt tokens than ids sent, more tokens than asked for, fewer than came, or another number than the ids that came."""
    counted = record.usage_completion_tokens
    miscounted = counted < record._least_tokens or (record._lists_tokens and counted != record._least_tokens)
    return record.usage_prompt_tokens != record.prompt_tokens or counted > record.max_tokens or miscounted


# In this order; each may lean on those before it having been false.
_REPLY = (
    ("cut_off", lambda record: not record.done_events or not record.finish_reasons),
    ("no_usage", lambda record: record.usage_completion_tokens is None or record.usage_prompt_tokens is None),
    ("duplicated", _duplicated),
    ("wrong_usage", _wrong_usage),
    ("empty", lambda record: not record.usage_completion_tokens or not record._texts),
    ("short", lambda record: record.fixed_length and record.usage_completion_tokens < record.max_tokens),
)
