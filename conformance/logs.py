"""Training logs that people have: transformers' trainer_state.json, and TensorBoard event files; what they hold by step."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.errors import ContractError

# Bundle's field -> names of it in a log: the Trainer's, the same under TensorBoard's prefix, Tunix's.
NAMES = {
    "loss": ("loss", "train/loss"),
    "grad_norm": ("grad_norm", "train/grad_norm"),
    "learning_rate": ("learning_rate", "train/learning_rate"),
}
ROUNDED = 4  # decimals that Trainers before transformers 5 leave of a loss
FRAME = struct.Struct("<QI")  # of a TFRecord: length of the data, its masked CRC32C; behind the data 4 bytes more


@dataclass(frozen=True, slots=True)
class Log:
    """`values` maps the logger's own step number to the fields that it has; `planned` steps of the run, None where not said."""

    source: Path
    values: dict[int, dict[str, float]]
    planned: int | None = None
    precision: str = ""

    def series(self, field: str) -> dict[int, float]:
        return {step: values[field] for step, values in sorted(self.values.items()) if field in values}


def read_trainer_state(path: Path) -> Log:
    try:
        state = json.loads(path.read_text())
        history, planned = state["log_history"], state["max_steps"]
        values = {}
        for entry in history:
            found = {field: float(entry[name]) for field, names in NAMES.items() for name in names if name in entry}
            if found:
                values.setdefault(int(entry["step"]), {}).update(found)
    except OSError as error:
        raise ContractError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ContractError(f"{path}: not whole JSON: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"{path}: not a trainer_state.json: {type(error).__name__} {error}") from error
    losses = [one["loss"] for one in values.values() if "loss" in one]
    is_rounded = all(round(loss, ROUNDED) == loss for loss in losses)
    return Log(path, values, planned, f"losses rounded to {ROUNDED} decimals" if is_rounded else "losses as float32")


def read_tensorboard(folder: Path) -> Log:
    """Every scalar of every event file below `folder`; one run's, or the steps would contradict each other."""
    files = sorted(folder.rglob("*tfevents*"))
    if not files:
        raise ContractError(f"{folder}: no TensorBoard event file (*tfevents*) in it")
    field_of = {name: field for field, names in NAMES.items() for name in names}
    values: dict[int, dict[str, float]] = {}
    for path in files:
        for step, tag, value in _scalars(path):
            if tag in field_of:
                at = values.setdefault(step, {})
                if at.setdefault(field_of[tag], value) != value:
                    before = at[field_of[tag]]
                    raise ContractError(f"{path}: {tag} of step {step} is {value} here and {before} before: give one run's folder")
    return Log(folder, values, precision="scalars as float32")


def _scalars(path: Path) -> Iterator[tuple[int, str, float]]:
    """(step, tag, value), float32 widened: simple values, and the scalar tensors that newer writers use."""
    try:
        from tensorboardX.proto.event_pb2 import Event  # only here: no other input needs it
    except ImportError as error:
        raise ContractError(f"{path}: TensorBoard events need tensorboardX: pip install 'tpu-parity[import]'") from error
    for record in _records(path):
        event = Event.FromString(record)
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            if kind == "simple_value":
                yield event.step, value.tag, value.simple_value
            elif kind == "tensor" and len(value.tensor.float_val) == 1:
                yield event.step, value.tag, value.tensor.float_val[0]


def _records(path: Path) -> Iterator[bytes]:
    from tensorboardX.crc32c import crc32c

    data, at = path.read_bytes(), 0
    while at < len(data):
        head = data[at : at + FRAME.size]
        whole = len(head) == FRAME.size
        length, check = FRAME.unpack(head) if whole else (0, 0)
        crc = crc32c(head[:8])
        end = at + FRAME.size + length + 4
        if not whole or check != ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF or end > len(data):
            raise ContractError(f"{path}: not a whole event file: the record at byte {at} of {len(data)} is cut off or damaged")
        yield data[at + FRAME.size : end - 4]
        at = end
