"""What a stack writes while it is timed: a line for each optimizer step, and what it stands on. The words of the training benchmark.

A stack's `bench` command writes into `--out`: steps.jsonl, a line when a step has ended, and stack.json when training has.
"""

import math
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.contract.digest import canonical_json, sha256_bytes, sha256_json, tensor_bytes
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, Plan, Step
from conformance.contract.run_record import Consumed, StepLine

STEPS, STACK = "steps.jsonl", "stack.json"
HBM, RSS = "HBM", "RSS"
now_ns = time.monotonic_ns  # one clock for all processes of a machine


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One optimizer step. Times are of this machine's monotonic clock, read when the device had finished what was asked of it.

    `start_ns`: the end of the step before, of the first one: training begins. So loading rows and noting them lie inside.
    `tokens`: targets of the update; `input_tokens`: all without padding; `padded_tokens`: all with it. `gradient_norm` is that before
    clipping.
    """

    step: int
    start_ns: int
    end_ns: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    input_tokens: int
    padded_tokens: int
    rows_sha256: str
    tokens_sha256: str


@dataclass(frozen=True, slots=True)
class StackFacts:
    """What a timed process stands on. `environment`: settings as read back; `compile_s`: None where the stack does not know it.

    `peak_memory_bytes`: of the fullest chip's HBM, or of the process (RSS) where there is none.
    """

    stack: str
    platform: str
    device: str
    chips: int
    code_sha256: str
    versions: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    compile_s: float | None = None
    peak_memory_bytes: int | None = None
    memory_of: str = ""


class StepWriter:
    """Appends a run's steps to FOLDER/steps.jsonl as they end."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._file = folder, (folder / STEPS).open("x")

    def add(self, line: StepLine, consumed: Iterable[Consumed], start_ns: int, end_ns: int) -> None:
        """Refuses a loss or gradient norm that is no number: a run that has diverged is not timed on."""
        step = timed_step(line, list(consumed), start_ns, end_ns)
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(getattr(step, name)):
                raise ContractError(f"step {step.step}: {name} is {getattr(step, name)}: the run has diverged")
        self._file.write(canonical_json(asdict(step)) + "\n")
        self._file.flush()

    def close(self, facts: StackFacts) -> None:
        self._file.close()
        (self.folder / STACK).write_text(canonical_json(asdict(facts)))


def peak_rss_bytes() -> int:
    """Of this process; Linux counts in KiB."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def timed_step(line: StepLine, consumed: list[Consumed], start_ns: int, end_ns: int) -> TimedStep:
    padded = sum(one.width * len(one.rows) for one in consumed)
    counts = {"tokens": line.loss_tokens, "input_tokens": line.tokens, "padded_tokens": padded}
    figures = {"loss": line.loss, "gradient_norm": line.grad_norm, "learning_rate": line.learning_rate}
    return TimedStep(line.step, start_ns, end_ns, **figures, **counts, **_digests(_consumed_rows(consumed)))


def planned_step(plan: Plan, step: Step) -> dict[str, int | str]:
    """What a step must say whatever the split into micro-batches: tokens, input_tokens, rows_sha256, tokens_sha256."""
    rows = [plan.by_row[row] for row in step.rows]
    digests = [(row.row, *(sha256_bytes(tensor_bytes(part)) for part in (row.ids, row.loss_mask))) for row in rows]
    counts = {"tokens": sum(int(row.loss_mask.sum()) for row in rows), "input_tokens": sum(len(row.ids) for row in rows)}
    return counts | _digests(digests)


def _consumed_rows(consumed: list[Consumed]) -> list[tuple[int, str, str]]:
    """(row, digest of its ids, of its loss mask) in the order of micro-batches and shards, which no split changes; no empty rows."""
    ordered = sorted(consumed, key=lambda one: (one.micro, one.shard))
    rows = [row for one in ordered for row in zip(one.rows, one.ids_sha256, one.mask_sha256, strict=True)]
    return [row for row in rows if row[0] != EMPTY]


def _digests(rows: list[tuple[int, str, str]]) -> dict[str, str]:
    return {"rows_sha256": sha256_json([row[0] for row in rows]), "tokens_sha256": sha256_json([row[1:] for row in rows])}
