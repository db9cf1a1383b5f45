"""Holds a measurement bundle against its own cells: what was sent, when, and whether the events of a request are in order."""

from collections.abc import Iterator

import numpy as np

from conformance.bench.cells import Cell
from conformance.bench.events import Record
from conformance.bench.files import Facts
from conformance.bench.measurements import Measured, Measurements
from conformance.contract.digest import sha256_json


def problems(measurements: Measurements) -> Iterator[str]:
    """One sentence each; none: the bundle is what a sweep writes. Digests of files were checked when it was opened."""
    names = {cell.name for cell in measurements.plan.cells}
    if names != set(measurements.manifest.cells):
        yield f"manifest.cells: {sorted(names ^ set(measurements.manifest.cells))[0]} is in one of manifest and cells.toml only"
        return
    for replicate in measurements.replicates:
        for cell in measurements.plan.cells:
            if not measurements.has(replicate, cell):
                yield f"replicate {replicate}, {cell.name}: not measured yet"
                continue
            measured = measurements.read(replicate, cell)
            for problem in _cell_problems(measured, measurements.manifest.cells[cell.name]):
                yield f"replicate {replicate}, {cell.name}: {problem}"


def _cell_problems(measured: Measured, digest: str) -> Iterator[str]:
    record, cell = measured.record, measured.cell
    if (record.name, record.digest) != (cell.name, digest):
        yield f"its record is of {record.name} with digest {record.digest[:12]}, not {digest[:12]}"
    if record.left_out:
        return
    if _sent_digest(measured.facts) != digest:
        yield "other prompts, another schedule or other lengths were sent than the cell's (digest)"
    if measured.run.interrupted or len(measured.run.records) != cell.requests:
        yield f"{len(measured.run.records)} requests of {cell.requests}, interrupted: {measured.run.interrupted}"
        return
    yield from _arrival_problems(cell, measured)
    for one in measured.run.records:
        if not _in_order(one):
            yield f"request {one.index}: its times are not in order"


def _sent_digest(facts: Facts) -> str:
    lengths = {"output_tokens": facts.max_tokens, "length": "fixed" if facts.fixed_length else "natural"}
    return sha256_json({"schedule": facts.schedule_sha256, "prompts": facts.prompts_sha256} | lengths)


def _arrival_problems(cell: Cell, measured: Measured) -> Iterator[str]:
    """Latencies count from the schedule, so the scheduled times must be the schedule's."""
    if cell.schedule.digest != measured.facts.schedule_sha256:
        yield "its schedule is not the one that the cell's seed draws"
    elif cell.mode != "closed":
        due_ns = measured.run.origin_ns + np.rint(cell.schedule.offsets_s * 1e9).astype(np.int64)
        wrong = [one.index for one, due in zip(measured.run.records, due_ns, strict=True) if one.scheduled_ns != due]
        if wrong:
            yield f"request {wrong[0]} and {len(wrong) - 1} more were not scheduled when the cell's seed says"


def _in_order(record: Record) -> bool:
    times = [record.scheduled_ns, record.sent_ns, record.headers_ns, *record.chunk_ns, record.end_ns]
    known = [time for time in times if time is not None]
    return known == sorted(known)
