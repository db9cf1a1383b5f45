"""A correction of the port switched off."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from tpu_impl.corrections import ALL, Corrections


@contextmanager
def without(name: str) -> Iterator[None]:
    """A correction switched off: everywhere, because `ALL` is the default of every function that corrects something."""
    assert name in {field.name for field in dataclasses.fields(Corrections)}, name
    object.__setattr__(ALL, name, False)
    try:
        yield
    finally:
        object.__setattr__(ALL, name, True)
