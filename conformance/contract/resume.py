"""A resumed run against the uninterrupted one, in both stacks."""

from dataclasses import dataclass

import numpy as np

from conformance.contract.draws import Tensors
from conformance.contract.run_record import Consumed, Resume, StepLine

MOMENTS = (".m", ".v")  # how the names of Adam's moments end
STEPS, SPLIT, END = 6, 3, 5  # of a whole run, of its first save, of a run that ends early and saves for that


@dataclass(frozen=True, slots=True)
class Finished:
    """A run at its end: what its recorder saw, adapter and moments, and what the save that it started from says."""

    steps: list[StepLine]
    consumed: list[Consumed]
    end: Tensors
    saved_step: int | None


def resume_of(dropout: float, save: str, split: int, whole: Finished, resumed: Finished) -> Resume:
    """`resumed` started from the save of `whole` (or of a run like it) at step `split`."""
    moments = {name for name in whole.end if name.endswith(MOMENTS)}
    return Resume(
        dropout, save, split,
        equal_loss=whole.steps[split:] == resumed.steps,
        equal_adapters=_equal(whole.end, resumed.end, set(whole.end) - moments),
        equal_moments=_equal(whole.end, resumed.end, moments),
        equal_position=[one for one in whole.consumed if one.step >= split] == resumed.consumed,
        saved_step=resumed.saved_step,
        steps=STEPS,
    )  # fmt: skip


def _equal(a: Tensors, b: Tensors, names: set[str]) -> bool:
    return bool(names) and all(np.array_equal(a[name], b[name]) for name in names)
