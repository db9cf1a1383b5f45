"""Server-sent events from bytes, however they are cut."""

import json

import pytest

from conformance.bench.sse import Stream
from fixtures.scripted_replies import SEPARATORS, choice

TEXTS = ["", " a", f" b{SEPARATORS}c", " ü中", ""]


def reply(end: bytes = b"\n") -> bytes:
    chunks = [choice(text) for text in TEXTS] + [choice(" end", "length")]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}
    lines = [json.dumps(one, ensure_ascii=False) for one in (*chunks, usage)] + ["[DONE]"]
    return b": a comment" + 2 * end + b"".join(b"data: " + line.encode() + 2 * end for line in lines)


def fed(*pieces: bytes) -> Stream:
    stream = Stream()
    for at_ns, piece in enumerate(pieces, 1):
        stream.feed(piece, at_ns)
    return stream


def seen(stream: Stream) -> tuple:
    return stream.chunk_characters, stream.usage_completion_tokens, stream.finish_reasons, stream.done_events, stream.error


WHOLE = ([len(text) for text in TEXTS] + [4], 5, ["length"], 1, "")


def test_a_reply_reads_the_same_wherever_it_is_cut():
    """Every cut into two pieces, inside characters and line ends too; with either line end."""
    for data in (reply(), reply(b"\r\n")):
        assert all(seen(fed(data[:cut], data[cut:])) == WHOLE for cut in range(len(data) + 1))


def test_separators_of_unicode_are_text():
    """Control: lines as `str.splitlines` sees them, which is what httpx's aiter_lines does, break the third chunk."""
    assert seen(fed(reply())) == WHOLE
    unicode_lines = "\n".join(reply().decode().splitlines()).encode()
    assert fed(unicode_lines).error == "malformed"


def test_events_have_the_time_of_the_read_that_ended_them():
    """The cut is inside a character of the fourth chunk."""
    cut = reply().index("ü".encode()) + 1
    stream = fed(reply()[:cut], reply()[cut:])
    assert stream.chunk_ns == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"data: {", "malformed"),
        (b"data: 5", "malformed"),
        (b'data: {"choices": [{"index": 0}]}', "malformed"),
        (b'data: {"choices": [{"text": null}]}', "malformed"),
        (b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": "2"}}', "malformed"),
        (b"data: \xff", "malformed"),
        (b'data: {"error": {"message": "out of memory"}}', "error_in_stream"),
        (b'data:{"choices": [{"delta": {"role": "assistant"}}]}', ""),
        (b"event: ping", ""),
    ],
)
def test_lines_that_make_no_sense_are_named(line, error):
    """Nothing behind such a line is read; a role chunk, a comment and a missing space are no errors."""
    stream = fed(line + b"\n\n" + reply())
    assert stream.error == error
    assert bool(stream.done_events) == (not error)


def test_listed_ids_are_counted():
    """vLLM with return_token_ids: ids of each chunk; the first chunk lists the prompt's too, which do not count."""
    line = json.dumps({"choices": [{"text": " a b", "token_ids": [5, 6], "prompt_token_ids": [1, 2, 3]}]}).encode()
    assert fed(b"data: " + line + b"\n").chunk_tokens == [2]


def test_lags_are_those_of_the_first_text_and_of_the_last_choice():
    """An event without text has no first lag, and a read without a choice (`usage`, [DONE]) no last one."""
    stream, text = Stream(), b'data: {"choices": [{"text": " a"}]}\n'
    for number, part in enumerate((b'data: {"choices": [{"text": ""}]}\n', text, text, b"data: [DONE]\n")):
        stream.feed(part, number, lag_ns=10 * number)
        assert stream.first_lag_ns == (None if number == 0 else 10)
        assert stream.last_lag_ns == min(20, 10 * number)
