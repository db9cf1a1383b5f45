"""When what a reader has just been given came in: between two of the event loop's looks at its connections, each with its times."""

import selectors
import time
from collections import deque

LOOK_S = 0.001  # the shortest wait that epoll knows


class WatchedSelector(selectors.DefaultSelector):
    """For an asyncio loop: looks at least every LOOK_S, however long the loop would wait, and keeps when its last looks were.

    asyncio reads a connection after the look that found it ready, and wakes the task that waits for it after the next one. What that
    task is given had come in by the end of the look before the last, and after the one before that began, which would have found it.
    Other tasks that wait for this one are woken later, as is who waits for the end of a connection: neither can ask here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._looks_ns = deque([(time.monotonic_ns(),) * 2] * 3, maxlen=3)  # (begun, ended)

    def select(self, timeout: float | None = None) -> list:
        if timeout is None or timeout > 0:
            super().select(LOOK_S if timeout is None else min(timeout, LOOK_S))
        begun_ns = time.monotonic_ns()
        ready = super().select(0)
        self._looks_ns.append((begun_ns, time.monotonic_ns()))
        return ready

    def read_ns(self) -> int:
        """CLOCK_MONOTONIC when what the running task has just been given was there, whatever else was read before it."""
        return self._looks_ns[-2][1]

    def unread_ns(self) -> int:
        """The most that it can have lain there unread until then."""
        return self._looks_ns[-2][1] - self._looks_ns[-3][0]
