"""The table of plants: a name in the catalogue -> how the fault is planted."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from conformance.contract.faults import Fault
from conformance.contract.seams import Edit, edited
from tpu_impl.corrections import Corrections
from tpu_impl.faults import after, inputs, meshes, model, training
from tpu_impl.faults.seams import without

Plant = Callable[[float | None], AbstractContextManager]
EDITS: dict[str, tuple[Edit, ...]] = inputs.EDITS | model.EDITS | training.EDITS | meshes.EDITS | after.EDITS


def _switch(name: str) -> Plant:
    return lambda value: without(name)


PLANTS: dict[str, Plant] = {name: partial(edited, edits) for name, edits in EDITS.items()} | {
    f"without {field.name}": _switch(field.name) for field in dataclasses.fields(Corrections)
}


def planted(fault: Fault) -> AbstractContextManager:
    return PLANTS[fault.plant](fault.value)
