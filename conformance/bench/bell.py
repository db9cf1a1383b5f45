"""Wakes the event loop at the scheduled times."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence


class Bell:
    """A thread that calls `ring(i)` in the loop at due_ns[i] (CLOCK_MONOTONIC, ascending), until it leaves the context.

    asyncio's own timers wake up to 1 ms late: epoll counts whole milliseconds.
    """

    def __init__(self, due_ns: Sequence[int], ring: Callable[[int], None]):
        self._loop, self._due_ns, self._ring = asyncio.get_running_loop(), due_ns, ring
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run, name="bell", daemon=True)

    def __enter__(self) -> "Bell":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for index, due_ns in enumerate(self._due_ns):
            if self._stop.wait(max(0, due_ns - time.monotonic_ns()) / 1e9):
                return
            self._loop.call_soon_threadsafe(self._ring, index)
