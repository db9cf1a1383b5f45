"""Sweeps made by hand, without a server: every request is answered after a stated time. For tests."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from conformance.bench.cells import Cell, digests_of, read_plan
from conformance.bench.events import Record
from conformance.bench.load import Measurement, Target
from conformance.bench.measurements import CellRecord, Subject
from conformance.bench.metrics import Counters
from conformance.bench.speed_of_light import Model
from conformance.bench.sweep_folder import SweepFolder

MS, ORIGIN_NS = 1_000_000, 10**12
TOKENS = np.arange(100, 400, dtype=np.int32)
MODEL = Model(parameters=2e6, weight_bytes=4e6)  # so small that nothing is impossible
CELLS = """
seed = 1
warm_up_requests = 2
[[objectives]]
ttft_ms = 100
[[groups]]
mode = "open"
levels = [10, 20]
input_tokens = [32]
output_tokens = 8
length = "LENGTH"
requests = 40
[[groups]]
mode = "closed"
levels = [2]
input_tokens = [32]
output_tokens = 8
requests = 6
"""
SETTINGS = {
    "platform": "gpu", "model_length": 1024, "dtype": "bfloat16", "kv_dtype": "auto", "quantisation": "none", "max_sequences": 256,
    "max_batched_tokens": 8192, "prefix_caching": False, "seed": 0, "image": "x@sha256:0", "tensor_parallel": 2, "memory_fraction": 0.9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scene:
    """`ttft_ms` of each start; `busy_ms`: the server is taken by a request for so long, and the next one waits (0: never).

    `output_tokens`: of each reply in turn; `change`: what else becomes of a cell's record.
    """

    ttft_ms: tuple[float, ...] = (50.0, 51.0, 52.0)
    busy_ms: float = 0.0
    output_tokens: tuple[int, ...] = (8,)
    length: str = "fixed"
    settings: dict = field(default_factory=lambda: SETTINGS)
    machine: str = "v6e-8"
    seed: int = 1
    change: Callable[[CellRecord], CellRecord] = lambda record: record
    change_run: Callable[[Measurement], Measurement] = lambda run: run
    platform: str = "gpu"
    weights_sha256: dict = field(default_factory=dict)  # of what was served


def write_sweep(path: Path, scene: Scene = Scene(), cells: str = CELLS) -> SweepFolder:
    """A whole bundle in which every check passes, but for what the scene says."""
    toml = path.with_name(f"{path.name}.toml")
    toml.write_text(cells.replace("LENGTH", scene.length).replace("seed = 1", f"seed = {scene.seed}"))
    plan = read_plan(toml)
    subject = Subject(scene.platform, "merged", "0" * 64, scene.machine, MODEL)
    folder = SweepFolder.begin(path, toml, subject, len(scene.ttft_ms), digests_of(plan, TOKENS))
    for number, ttft_ms in enumerate(scene.ttft_ms, 1):
        manifest = {"version": 1, "settings": scene.settings, "started": f"start {number}", "weights_sha256": scene.weights_sha256}
        server = folder.add_server(number, manifest if scene.settings else {})
        for cell in plan.cells:
            run = scene.change_run(_run(cell, scene, ttft_ms))
            record = _record(folder, cell, run, number, server)
            folder.add(number, scene.change(record), Target("http://127.0.0.1:1", "merged"), cell.load(TOKENS), run)
    return folder


def _run(cell: Cell, scene: Scene, ttft_ms: float) -> Measurement:
    """A closed loop of so many places: each sends when its last reply has ended."""
    records, places_ns, free_ns = [], [ORIGIN_NS] * int(cell.level), 0
    for index, offset_s in enumerate(cell.schedule.offsets_s):
        place = index % len(places_ns)
        at_ns = places_ns[place] if cell.mode == "closed" else ORIGIN_NS + round(offset_s * 1e9)
        start_ns = max(at_ns, free_ns)
        tokens = scene.output_tokens[index % len(scene.output_tokens)]
        records.append(_reply(cell, index, at_ns, start_ns + round(ttft_ms * MS), tokens))
        places_ns[place] = records[-1].end_ns
        free_ns = start_ns + round(scene.busy_ms * MS)
    return Measurement(ORIGIN_NS, "2026-11-30T00:00:00+00:00", False, 0.1, 50.0, tuple(records))


def _reply(cell: Cell, index: int, at_ns: int, first_ns: int, tokens: int) -> Record:
    chunk_ns = tuple(first_ns + token * 10 * MS for token in range(tokens))
    return Record(
        index=index, prompt_tokens=cell.input_tokens, max_tokens=cell.output_tokens, fixed_length=cell.length == "fixed",
        scheduled_ns=at_ns, sent_ns=at_ns, headers_ns=at_ns, chunk_ns=chunk_ns, chunk_characters=(3,) * tokens,
        chunk_tokens=(-1,) * tokens, end_ns=chunk_ns[-1], status=200, finish_reasons=("length",), done_events=1,
        usage_prompt_tokens=cell.input_tokens, usage_completion_tokens=tokens, first_lag_ns=0, last_lag_ns=0,
    )  # fmt: skip


def _record(folder: SweepFolder, cell: Cell, run: Measurement, number: int, server: str) -> CellRecord:
    before = Counters("", 5, 5, 5, 0, 0, 0, 0, float(number))
    prompt, output = (sum(getattr(one, f"usage_{kind}_tokens") for one in run.records) for kind in ("prompt", "completion"))
    counted = {"prompt_tokens": 5 + prompt, "generation_tokens": 5 + output, "finished_requests": 5 + len(run.records)}
    after = replace(before, **counted)
    return CellRecord(cell.name, folder.manifest.cells[cell.name], server, 2, before, after)


def lagging(run: Measurement) -> Measurement:
    """The same run by a client that came 9 ms late to every first text."""
    return replace(run, records=tuple(replace(one, first_lag_ns=9 * MS) for one in run.records))
