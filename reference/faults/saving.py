"""A fault planted in a saver's own process, which is a fork that knows nothing of the recorder's."""

from collections.abc import Callable

from conformance.contract.seams import edited
from reference.faults.plants import EDITS


def saver_with(plant: str, value: float | None, function: Callable, *args):
    """`function` of `reference.saver` with the fault in place."""
    with edited(EDITS[plant], value):
        return function(*args)
