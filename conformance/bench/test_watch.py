"""The loop looks often; what is read came in between the look that did not find it and the one that did."""

import asyncio
import selectors
import socket
import time

import pytest

from conformance.bench.watch import LOOK_S, WatchedSelector

HELD_S = 0.05


@pytest.mark.parametrize(
    ("asked", "waited"), [(None, [LOOK_S, 0]), (2.0, [LOOK_S, 0]), (LOOK_S / 4, [LOOK_S / 4, 0]), (0, [0])], ids=str
)
def test_no_wait_is_longer_than_a_look(monkeypatch, asked, waited):
    """Whatever the loop asks for; after a wait, the look itself does not wait: its time is that of its answer."""
    seen = []
    monkeypatch.setattr(selectors.DefaultSelector, "select", lambda _, timeout=None: seen.append(timeout) or [])
    assert WatchedSelector().select(asked) == []
    assert seen == waited


def read_after(hold_before_s: float, hold_after_s: float) -> tuple[float, float]:
    """Seconds of one byte, as its reader's task learns them: from its write to its time, and the most that it can have lain unread."""
    watch = WatchedSelector()

    async def lateness() -> tuple[float, float]:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            reading = asyncio.create_task(read(reader))
            await asyncio.sleep(0)
            time.sleep(hold_before_s)  # on purpose: the loop is held
            written_ns = time.monotonic_ns()
            theirs.send(b"x")
            time.sleep(hold_after_s)
            read_ns, unread_ns = await reading
            writer.close()
            await writer.wait_closed()
        return (read_ns - written_ns) / 1e9, unread_ns / 1e9

    async def read(reader: asyncio.StreamReader) -> tuple[int, int]:
        await reader.read(1)
        times = watch.read_ns(), watch.unread_ns()
        time.sleep(HELD_S)  # what the task does with it makes it no later
        return times

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
        return runner.run(lateness())


@pytest.mark.parametrize(("before_s", "after_s"), [(0, 0), (0, HELD_S), (HELD_S, 0), (HELD_S, HELD_S)])
def test_nothing_lay_unread_for_longer_than_is_said(before_s, after_s):
    """A loop that is held before or after the byte came in does not know which it was: all of it counts."""
    late_s, unread_s = read_after(before_s, after_s)
    assert after_s <= late_s <= unread_s
    assert unread_s >= before_s + after_s


def test_a_later_look_would_say_too_little(monkeypatch):
    """Control: counted from the look that found it, the byte was hardly late."""
    monkeypatch.setattr(WatchedSelector, "unread_ns", lambda watch: watch._looks_ns[-2][1] - watch._looks_ns[-2][0])
    late_s, unread_s = read_after(0, HELD_S)
    assert late_s >= HELD_S
    assert late_s > unread_s


def test_an_earlier_time_would_be_before_the_write(monkeypatch):
    """Control: the look before the one that found the byte ended before the byte was written."""
    monkeypatch.setattr(WatchedSelector, "read_ns", lambda watch: watch._looks_ns[-3][1])
    late_s, _ = read_after(HELD_S, 0)
    assert late_s < 0
