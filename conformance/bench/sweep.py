"""A sweep: every cell on every server start, each whole or absent, so that a stopped one goes on where it was."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from conformance.bench.cells import UNIT, Cell, Plan
from conformance.bench.client import measure
from conformance.bench.compiling import Window
from conformance.bench.events import OK, outcomes
from conformance.bench.figures import Figures, figures_of
from conformance.bench.load import LIMITS, Limits, Load, Measurement
from conformance.bench.measurements import CellRecord
from conformance.bench.metrics import Counters, settled_counters
from conformance.bench.servers import Running
from conformance.bench.sweep_folder import SweepFolder
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, silent

HELD = 0.98  # of the offered rate; a server that achieves less is saturated, and its latencies are those of a growing queue
NOT_WATCHED = Window(unseen="the server's log is not known (--log)")

Start = Callable[[], AbstractContextManager[Running]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """`start` gives a server that is newly started; `tokens` are those that prompts are drawn from."""

    folder: SweepFolder
    tokens: np.ndarray
    start: Start
    limits: Limits = LIMITS
    progress: Progress = silent

    def run(self) -> None:
        """All replicates that are not whole yet. KeyboardInterrupt leaves whole cells alone."""
        begun_s = time.monotonic()
        waiting = [number for number in self.folder.replicates if self.folder.left(number)]
        for done, number in enumerate(waiting, 1):
            self.progress(f"replicate {number} of {self.folder.manifest.replicates}: starting its server")
            with self.start() as running:
                self._replicate(number, running)
            minutes = (time.monotonic() - begun_s) / 60
            left = minutes / done * (len(waiting) - done)
            self.progress(f"replicate {number} is whole after {minutes:.1f} min; about {left:.1f} min are left")

    def _replicate(self, number: int, running: Running) -> None:
        server, plan = self.folder.add_server(number, running.manifest), self.folder.plan
        saturated: dict[tuple, Cell] = {}
        for index, cell in enumerate(plan.cells, 1):
            place = f"replicate {number}, cell {index} of {len(plan.cells)}, {cell.name}"
            if cell.series in saturated and not self.folder.has(number, cell):
                self._leave_out(number, cell, saturated[cell.series], place)
                continue
            if not self.folder.has(number, cell):
                self.progress(f"{place}: {cell.requests} requests ...")
                self._measure(number, cell, running, server)
            if run := self.folder.read(number, cell).run:
                figures = figures_of(run.records, open_loop=cell.mode == "open")
                self.progress(f"{place}: {_in_short(figures)}")
                if is_saturated(cell, figures):
                    saturated.setdefault(cell.series, cell)

    def _leave_out(self, number: int, cell: Cell, at: Cell, place: str) -> None:
        reason = f"the server is saturated at {at.level:g} requests/s already"
        self.folder.leave_out(number, cell, reason)
        self.progress(f"{place}: left out: {reason}")

    def _measure(self, number: int, cell: Cell, running: Running, server: str) -> None:
        warm_up = self.folder.plan.warm_up_requests
        self._warm_up(cell, running, warm_up)
        load = cell.load(self.tokens)
        before = settled_counters(running.target.url)
        if running.watch:
            running.watch.mark()
        run = _measured(running, load, self.limits)
        window = running.watch.window() if running.watch else NOT_WATCHED
        after = self._after(running)
        record = CellRecord(cell.name, self.folder.manifest.cells[cell.name], server, warm_up, before, after, window)
        self.folder.add(number, record, running.target, load, run)

    def _after(self, running: Running) -> Counters:
        """A server that ended in a cell has not been measured by it."""
        running.check()
        return settled_counters(running.target.url)

    def _warm_up(self, cell: Cell, running: Running, requests: int) -> None:
        run = _measured(running, cell.warm_up(self.tokens, requests), self.limits)
        ended = outcomes(run.records)
        if OK not in ended:
            details = next((record.detail for record in run.records if record.detail), "")
            raise ContractError(f"cell {cell.name}: no warm-up request has a whole reply: {ended} {details}")


def _measured(running: Running, load: Load, limits: Limits) -> Measurement:
    """Whole, or KeyboardInterrupt. The event loop leaves SIGTERM at its default, under which nobody would stop the server."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        run = measure(running.target, load, limits)
    finally:
        signal.signal(signal.SIGTERM, handler)
    if run.interrupted:
        raise KeyboardInterrupt
    return run


def is_saturated(cell: Cell, figures: Figures) -> bool:
    """Of an open loop alone. Without two whole replies nothing was achieved."""
    if cell.mode != "open" or figures.offered_per_s is None:
        return False
    return (figures.achieved_per_s or 0.0) < HELD * figures.offered_per_s


def overview(plan: Plan, folder: SweepFolder) -> Iterator[str]:
    """What will run, how many requests, and the least time that arrivals take."""
    for group in plan.groups:
        levels, lengths = (", ".join(f"{value:g}" for value in values) for values in (group.levels, group.input_tokens))
        yield f"{group.mode}: {levels} {UNIT[group.mode]}, {lengths} tokens in, {group.output_tokens} out ({group.length})"
    cells = [cell for number in folder.replicates for cell in folder.left(number)]
    requests = sum(cell.requests + plan.warm_up_requests for cell in cells)
    arrivals_s = sum(cell.requests / cell.level for cell in cells if cell.mode == "open")
    yield f"server starts: {len(folder.replicates)}; {len(cells)} cells with {requests} requests are left, warm-ups included"
    yield (
        f"arrivals of open loops take {arrivals_s / 60:.0f} min at most (a series ends where it is saturated); "
        "bursts and closed loops as long as the server does"
    )


def _in_short(figures: Figures) -> str:
    rate = f"{figures.achieved_per_s:.2f} of {figures.offered_per_s:.2f} requests/s" if figures.achieved_per_s else "no rate"
    output = f"{figures.output_tokens_per_s:.1f} output tokens/s" if figures.output_tokens_per_s else "no output"
    p50 = f"TTFT p50 {figures.ttft_ms.p50:.1f} ms" if figures.ttft_ms.n else "no whole reply"
    return f"{figures.outcomes}, {rate}, {output}, {p50}"
