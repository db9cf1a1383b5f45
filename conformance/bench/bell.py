"""Wakes the event loop at the scheduled times, and measures how late the loop answers."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

TICK_NS = 5_000_000  # how often the loop's lag is sampled: the 5 ms that its p99 may be


class Bell:
    """A thread that calls `ring(i)` in the loop at due_ns[i], and samples the loop's lag every TICK_NS until it leaves the context.

    asyncio's own timers wake up to 1 ms late: epoll counts whole milliseconds. A lag is the time from when a tick was due to when
    the loop came to it: what any reply that arrives at that moment waits, starvation of the whole process included.
    """

    def __init__(self, due_ns: Sequence[int], ring: Callable[[int], None]):
        self.lags_ns: list[int] = []
        self._loop, self._due_ns, self._ring = asyncio.get_running_loop(), due_ns, ring
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run, name="bell", daemon=True)

    def __enter__(self) -> "Bell":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tick_ns, index = time.monotonic_ns(), 0
        while True:
            due_ns = self._due_ns[index] if index < len(self._due_ns) else None
            is_tick = due_ns is None or tick_ns <= due_ns
            if self._stop.wait(max(0, (tick_ns if is_tick else due_ns) - time.monotonic_ns()) / 1e9):
                return
            if is_tick:
                self._loop.call_soon_threadsafe(self._tick, tick_ns)
                tick_ns += TICK_NS
            else:
                self._loop.call_soon_threadsafe(self._ring, index)
                index += 1

    def _tick(self, due_ns: int) -> None:
        self.lags_ns.append(time.monotonic_ns() - due_ns)
