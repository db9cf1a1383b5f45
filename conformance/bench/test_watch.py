"""The loop looks often, and what can have lain unread counts from the look that did not find it."""

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
    """Seconds of one byte: since it was written, and the most that it can have lain unread, as its reader's task learns it."""
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
            now_ns, unread_ns = await reading
            writer.close()
            await writer.wait_closed()
        return (now_ns - written_ns) / 1e9, unread_ns / 1e9

    async def read(reader: asyncio.StreamReader) -> tuple[int, int]:
        await reader.read(1)
        now_ns = time.monotonic_ns()
        return now_ns, watch.unread_ns(now_ns)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
        return runner.run(lateness())


@pytest.mark.parametrize(("before_s", "after_s"), [(0, 0), (0, HELD_S), (HELD_S, 0), (HELD_S, HELD_S)])
def test_nothing_lay_unread_for_longer_than_is_said(before_s, after_s):
    """A loop that is held before or after the byte came in does not know which it was: all of it counts."""
    late_s, unread_s = read_after(before_s, after_s)
    assert late_s <= unread_s
    assert unread_s >= before_s + after_s


def test_a_later_look_would_say_too_little(monkeypatch):
    """Control: counted from the last look, the one that woke the task, the byte was hardly late."""
    monkeypatch.setattr(WatchedSelector, "unread_ns", lambda watch, now_ns: now_ns - watch._looked_ns[-1])
    late_s, unread_s = read_after(0, HELD_S)
    assert late_s > HELD_S > unread_s
