"""What a recorder notes of a training run, in the words of the rungs *batches* and *trajectory*."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from conformance.contract.bundle_writer import BundleWriter

UNKNOWN = -2  # a row that is not one of the plan's
RUN_OF = {"float32": "f32", "bfloat16": "bf16"}  # the recipe's precision -> the name of its run
DEFAULT_DROPOUT = 0.1  # of the dropout runs, where the recipe has none


@dataclass(frozen=True, slots=True)
class Consumed:
    """One micro-batch of one shard as the training step took it; lists have an entry a row, an empty row counts nothing."""

    step: int
    micro: int
    shard: int
    rows: list[int]
    tokens: list[int]
    loss_tokens: list[int]
    ids_sha256: list[str]
    mask_sha256: list[str]
    width: int
    pad_side: str
    attended: list[int]


@dataclass(frozen=True, slots=True)
class StepLine:
    """One optimizer step over all micro-batches and shards; grad_norm before clipping."""

    step: int
    loss: float
    grad_norm: float
    learning_rate: float
    rows: int
    tokens: int
    loss_tokens: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Whether the run resumed at step `split` is the uninterrupted run, bit for bit.

    `save`: "interval", one that the trainer makes every few steps; "last", the one that it makes because a run ends. `saved_step`:
    the steps whose rows were consumed, as the save itself says; None: it says nothing.
    """

    dropout: float
    save: str
    split: int
    equal_loss: bool
    equal_adapters: bool
    equal_moments: bool
    equal_position: bool
    saved_step: int | None
    steps: int


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, `delay_ms` after a save began; `partial`: it left an unfinished folder; `equal`: the last whole save restored."""

    attempt: int
    delay_ms: float
    save_ms: float
    partial: bool
    restored_step: int
    equal: bool


def write_batches(writer: BundleWriter, consumed: Iterable[Consumed], steps: Iterable[StepLine]) -> None:
    for one in consumed:
        writer.line("batches", "consumed", **asdict(one))
    for line in steps:
        counts = {"rows": line.rows, "tokens": line.tokens, "loss_tokens": line.loss_tokens}
        writer.line("batches", "steps", step=line.step, learning_rate=line.learning_rate, **counts)


def write_steps(writer: BundleWriter, run: str, steps: Iterable[StepLine]) -> None:
    for line in steps:
        fields = asdict(line)
        del fields["rows"]
        writer.line("trajectory", "step", run=run, **fields)
