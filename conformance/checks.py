"""The checks of the ladder as plain functions, in the order in which they are proved, to run on any two bundles."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

from conformance.contract.errors import NotRecorded
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict
from conformance.judge import Judge

PREFIX = "test_"


def checks() -> dict[str, tuple[str, Callable]]:
    """Name -> (rung, function) of every check of the ladder: rung by rung, in each as its file has them."""
    return {name: (rung, check) for rung in RUNGS for name, check in _of_rung(rung)}


def _of_rung(rung: str) -> list[tuple[str, Callable]]:
    if not Path(__file__).with_name(f"{PREFIX}{rung}.py").exists():
        return []
    module = importlib.import_module(f"conformance.{PREFIX}{rung}")
    members = [(name, one) for name, one in inspect.getmembers(module, inspect.isfunction) if name.startswith(PREFIX)]
    return sorted(members, key=lambda member: member[1].__code__.co_firstlineno)


def needs_exchange(check: Callable) -> bool:
    return "exchanged" in inspect.signature(check).parameters


def promise_of(check: Callable) -> str:
    """First line of its docstring."""
    return inspect.getdoc(check).splitlines()[0]


def bundles_of(check: Callable) -> tuple[str, ...]:
    """The stacks whose bundles it takes."""
    wanted = inspect.signature(check).parameters
    return tuple(stack for stack in ("reference", "port") if {stack, "stacks", "exchanged"} & set(wanted))


def run_check(rung: str, check: Callable, reference, port, **fixtures) -> Finding:
    """The finding of one check on these two bundles."""
    judge = Judge(rung, check.__name__, promise_of(check))
    given = dict(judge=judge, reference=reference, port=port, stacks=(reference, port), **fixtures)
    wanted = inspect.signature(check).parameters
    if needs_exchange(check):
        given["exchanged"] = (reference.exchange, port.exchange)
    try:
        check(**{name: given[name] for name in wanted})
    except NotRecorded as error:  # in a partial rung; a difference that was measured before stays one
        if not judge.has_failed:
            return Finding(rung, check.__name__, judge.promise, Verdict.NOT_PROVEN, reason=str(error))
    return judge.finding
