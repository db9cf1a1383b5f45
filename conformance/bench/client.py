"""Sends a load to a server and keeps what came back, as raw events. Measures only: every figure is computed later.

Latencies count from the *scheduled* arrival (Schroeder et al., NSDI 2006: open and closed loops; Tene: coordinated omission).
No request is ever sent twice: aiohttp repeats only idempotent methods, and these are POSTs.
"""

import asyncio
import dataclasses
import gc
import json
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import aiohttp
import numpy as np

from conformance.bench.bell import Bell
from conformance.bench.events import Record
from conformance.bench.load import LIMITS, Limits, Load, Measurement, Target
from conformance.bench.sse import DETAIL_CHARACTERS, Stream
from conformance.bench.watch import WatchedSelector
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, silent

LEAD_NS = 50_000_000  # from the start of the loop to offset 0: the thread and the session are up by then
# Below the 5 s after which vLLM's server closes an idle connection: a request never meets a connection that is just being closed.
KEEP_ALIVE_S = 2.0
SPARE_FILES = 64  # open files that are not connections
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


def measure(target: Target, load: Load, limits: Limits = LIMITS, progress: Progress = silent) -> Measurement:
    """Sends the load once. SIGINT and SIGTERM end it with what was measured so far: `interrupted` is then set."""
    _check_connections(load, limits)
    watch = WatchedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
        return runner.run(_Run(target, load, limits, progress, watch).measure())


def _check_connections(load: Load, limits: Limits) -> None:
    most = min(limits.connections, load.schedule.concurrency or len(load.prompts))
    if load.schedule.kind == "burst" and most < len(load.prompts):
        raise ContractError(f"a burst of {len(load.prompts)} requests needs as many connections; {limits.connections} are allowed")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most + SPARE_FILES > files:
        raise ContractError(f"{most} connections need as many open files; `ulimit -n` allows {files}")


class _Run:
    """One run; its event loop, session and lists are its own."""

    def __init__(self, target: Target, load: Load, limits: Limits, progress: Progress, watch: WatchedSelector):
        self._url, self._load, self._limits, self._progress = f"{target.url.rstrip('/')}/v1/completions", load, limits, progress
        self._watch = watch
        self._headers = HEADERS | dict(target.headers)
        self._bodies = [_body(target, load, row) for row in load.prompts]  # encoded before the first arrival
        self._due_ns: list[int] = []
        self._records = [Record(i, len(row), load.max_tokens, load.fixed_length) for i, row in enumerate(load.prompts)]
        self._waiting = list(reversed(range(len(self._records))))
        self._tasks: list[asyncio.Task] = []
        self._left = len(self._records)

    async def measure(self) -> Measurement:
        self._over, self._places = asyncio.Event(), asyncio.Semaphore(self._limits.connections)
        started, interrupts, cpu_s = datetime.now(UTC).isoformat(timespec="seconds"), [], _cpu_s()
        timeout = aiohttp.ClientTimeout(total=self._limits.total_s, sock_connect=self._limits.connect_s)
        connector = aiohttp.TCPConnector(limit=self._limits.connections, keepalive_timeout=KEEP_ALIVE_S)
        with _interruptible(self._over, interrupts), _settled_memory():
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as self._session:
                origin_ns = time.monotonic_ns() + LEAD_NS
                await self._send_all(origin_ns)
        cpu_s, rss_mib = _cpu_s() - cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Measurement(origin_ns, started, bool(interrupts), cpu_s, rss_mib, tuple(self._records))

    async def _send_all(self, origin_ns: int) -> None:
        schedule = self._load.schedule
        self._due_ns = [] if schedule.concurrency else [origin_ns + round(offset * 1e9) for offset in schedule.offsets_s]
        with Bell(self._due_ns, self._arrive):
            for _ in range(schedule.concurrency or 0):
                self._start(self._follow())
            await self._over.wait()
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        faults = [end for end in ended if isinstance(end, Exception)]  # a task that was cancelled before it ran is none
        if faults:
            raise faults[0]

    def _arrive(self, index: int) -> None:
        if not self._over.is_set():  # the bell rings ahead of the loop
            self._start(self._request(index, self._due_ns[index]))

    async def _follow(self) -> None:
        """One place of a closed loop: the next request as soon as the last one is done."""
        while self._waiting and not self._over.is_set():
            await self._request(self._waiting.pop(), time.monotonic_ns())

    def _start(self, request) -> None:
        task = asyncio.get_running_loop().create_task(request)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task) -> None:
        if not task.cancelled() and task.exception():
            self._over.set()  # a fault of this client: nothing more is sent, and `_send_all` raises it

    async def _request(self, index: int, scheduled_ns: int) -> None:
        stream, events = Stream(), {"scheduled_ns": scheduled_ns}
        try:
            async with self._places:
                events["sent_ns"] = time.monotonic_ns()
                await self._exchange(self._bodies[index], stream, events)
        except asyncio.CancelledError:
            events["error"] = "interrupted"
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            events |= {"error": _kind(error), "detail": f"{type(error).__name__}: {error}"[:DETAIL_CHARACTERS]}
        events["end_ns"] = time.monotonic_ns()
        self._records[index] = dataclasses.replace(self._records[index], **_events(stream) | events)
        self._left -= 1
        self._progress_line()

    async def _exchange(self, body: bytes, stream: Stream, events: dict) -> None:
        async with self._session.post(self._url, data=body) as response:
            events |= {"headers_ns": self._watch.read_ns(), "status": response.status}
            if response.status != 200:
                events["detail"] = (await response.text(errors="replace"))[:DETAIL_CHARACTERS]
                return
            while data := await response.content.readany():
                stream.feed(data, self._watch.read_ns(), self._watch.unread_ns())
                if stream.error:
                    response.close()  # the rest is not wanted
                    return

    def _progress_line(self) -> None:
        total = len(self._records)
        if not self._left:
            self._over.set()
        if (total - self._left) % max(1, total // 5) == 0:
            self._progress(f"{total - self._left} of {total} requests done")


def _body(target: Target, load: Load, prompt: np.ndarray) -> bytes:
    body = {
        "model": target.model, "prompt": prompt.tolist(), "max_tokens": load.max_tokens, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    body |= {"ignore_eos": True} if load.fixed_length else {}
    return json.dumps(body | dict(target.extra)).encode()


def _events(stream: Stream) -> dict:
    values = {name.name: getattr(stream, name.name) for name in dataclasses.fields(stream) if not name.name.startswith("_")}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _kind(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    return "connect" if isinstance(error, aiohttp.ClientConnectorError) else "disconnected"


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _settled_memory() -> Iterator[None]:
    """What is there now is no longer walked by the garbage collector: at its own time it would stop the loop for tens of ms."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _interruptible(over: asyncio.Event, interrupts: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM set `over` and are noted, instead of ending the process."""
    loop = asyncio.get_running_loop()

    def interrupt(number: int) -> None:
        interrupts.append(number)
        over.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupt, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
