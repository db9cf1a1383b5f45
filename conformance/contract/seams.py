"""How a fault is planted into a stack: a few words of a function's source changed while it is in place."""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

VALUE = "VALUE"  # stands for the size of a variant in an edit


@dataclass(frozen=True, slots=True)
class Edit:
    """`old`, found exactly once in the source of `place` (module:function, module:Class.method or .property), becomes `new`."""

    place: str
    old: str
    new: str


def one(place: str, old: str, new: str) -> tuple[Edit]:
    return (Edit(place, old, new),)


@contextmanager
def edited(edits: tuple[Edit, ...], value: float | None) -> Iterator[None]:
    """Inside, the functions run their changed source, whoever has imported them: only their code is exchanged."""
    functions = [function_at(edit.place) for edit in edits]
    codes = [function.__code__ for function in functions]
    try:
        for function, edit in zip(functions, edits, strict=True):
            function.__code__ = _changed(function, edit, value)
        yield
    finally:
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = code


def function_at(place: str):
    module, _, path = place.partition(":")
    found = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return inspect.unwrap(found.fget if isinstance(found, property) else found)


def _changed(function, edit: Edit, value: float | None):
    """The code of the changed source, compiled at its own lines."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(edit.old) == 1, f"{edit.place}: {edit.old!r} is there {source.count(edit.old)} times"
    namespace: dict = {}
    body = _undecorated(source.replace(edit.old, edit.new.replace(VALUE, _literal(value))))
    exec(compile(body, inspect.getsourcefile(function), "exec"), function.__globals__, namespace)
    return namespace[function.__name__].__code__


def _literal(value: float | None) -> str:
    return repr(int(value) if value is not None and value == int(value) else value)


def _undecorated(source: str) -> str:
    return source[source.index("def ") :] if source.startswith("@") else source
