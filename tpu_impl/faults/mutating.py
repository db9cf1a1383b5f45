"""A mutant planted: the code of one function exchanged for that of its changed source."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.contract.mutants import Mutant, mutated


@contextmanager
def mutant_planted(mutant: Mutant) -> Iterator[None]:
    """Inside, whoever has imported the function runs the mutant; afterwards its own code again."""
    function = function_of(mutant)
    code = function.__code__
    function.__code__ = _changed(function, mutant)
    try:
        yield
    finally:
        function.__code__ = code


def function_of(mutant: Mutant):
    """The plain function below properties, caches, jit and context managers."""
    found = importlib.import_module(mutant.module)
    for name in mutant.function.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "func", None) or getattr(found, "fget", None) or getattr(found, "__func__", found)
    return inspect.unwrap(found)


def _changed(function, mutant: Mutant):
    """The code object of the same qualified name in the module's changed source, compiled at its own lines."""
    path = Path(inspect.getsourcefile(function))
    module = compile(mutated(path.read_bytes(), mutant), str(path), "exec", dont_inherit=True)
    return next(code for code in _codes(module) if code.co_qualname == function.__code__.co_qualname)


def _codes(code):
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _codes(constant)
