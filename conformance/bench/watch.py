"""How long what a reader has just been given can have lain unread: the event loop's looks at its connections, each with its time."""

import selectors
import time
from collections import deque

LOOK_S = 0.001  # the shortest wait that epoll knows


class WatchedSelector(selectors.DefaultSelector):
    """For an asyncio loop: looks at least every LOOK_S, however long the loop would wait, and keeps when its last looks began.

    asyncio reads a connection after the look that found it ready, and wakes the task that waits for it after the next one. What that
    task is given came in after the look before these two: earlier, that one would have found it. Other tasks that wait for this one
    are woken later, and would be told too little.
    """

    def __init__(self) -> None:
        super().__init__()
        self._looked_ns = deque([time.monotonic_ns()] * 3, maxlen=3)

    def select(self, timeout: float | None = None) -> list:
        if timeout is None or timeout > 0:
            super().select(LOOK_S if timeout is None else min(timeout, LOOK_S))
        self._looked_ns.append(time.monotonic_ns())
        return super().select(0)

    def unread_ns(self, now_ns: int) -> int:
        """The most that what a task has been given by `now_ns` (CLOCK_MONOTONIC) can have waited since it came in."""
        return now_ns - self._looked_ns[0]
