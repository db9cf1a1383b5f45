"""A fault planted in a saver's own process. It imports no model: every saver is a fork that does this anew."""

from collections.abc import Callable

from conformance.contract.seams import edited
from tpu_impl.faults.after import EDITS


def saver_with(plant: str, value: float | None, function: Callable, *args):
    """`function` of `tpu_impl.saver` with the fault in place."""
    with edited(EDITS[plant], value):
        return function(*args)
