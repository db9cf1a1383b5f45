"""Server-sent events of an OpenAI-compatible completion, from bytes as they come in."""

import json
from dataclasses import dataclass, field

from conformance.bench.events import Error

DATA, DONE = b"data:", b"[DONE]"
DETAIL_CHARACTERS = 300  # of a server's error text that are kept


@dataclass(slots=True)
class Stream:
    """A reply while it comes in; its fields are those of the record.

    Lines end at the byte `\\n` alone: U+2028, U+0085 and other separators of Unicode are text. Every event of one read has its time.
    """

    chunk_ns: list[int] = field(default_factory=list)
    chunk_characters: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    done_events: int = 0
    usage_prompt_tokens: int | None = None
    usage_completion_tokens: int | None = None
    first_lag_ns: int | None = None
    last_lag_ns: int | None = None
    error: Error = ""
    detail: str = ""
    _rest: bytes = b""

    def feed(self, data: bytes, at_ns: int, lag_ns: int = 0) -> None:
        """Bytes that were there at `at_ns`, and since `lag_ns` at the most; what follows a line that makes no sense is not read."""
        before = len(self.chunk_ns)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(DATA) and not self.error:
                self._event(line[len(DATA) :].strip(b" \r"), at_ns)
        if len(self.chunk_ns) > before:
            self.last_lag_ns = lag_ns
            if self.first_lag_ns is None and any(self.chunk_characters):
                self.first_lag_ns = lag_ns

    def _event(self, payload: bytes, at_ns: int) -> None:
        if payload == DONE:
            self.done_events += 1
            return
        try:
            self._chunk(json.loads(payload), at_ns)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):  # not JSON, or not of this shape
            self._fail("malformed", payload.decode(errors="replace"))

    def _chunk(self, chunk: dict, at_ns: int) -> None:
        if chunk.get("error"):
            self._fail("error_in_stream", json.dumps(chunk["error"]))
            return
        if choices := chunk["choices"]:
            self._choice(choices[0], at_ns)
        if usage := chunk.get("usage"):
            self.usage_prompt_tokens, self.usage_completion_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")

    def _choice(self, choice: dict, at_ns: int) -> None:
        text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""  # completions, chat
        ids = choice.get("token_ids")
        characters, tokens = len(text), -1 if ids is None else len(ids)
        self.chunk_ns.append(at_ns)
        self.chunk_characters.append(characters)
        self.chunk_tokens.append(tokens)
        if reason := choice.get("finish_reason"):
            self.finish_reasons.append(str(reason))

    def _fail(self, error: Error, detail: str) -> None:
        self.error, self.detail = error, detail[:DETAIL_CHARACTERS]


def _count(usage: dict, key: str) -> int:
    if type(usage[key]) is not int:
        raise TypeError(f"usage.{key} = {usage[key]!r} is not a whole number")
    return usage[key]
