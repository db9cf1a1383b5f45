"""What `tox -e mutants` prints: how many each check has seen, where the ladder saw them, and those that it did not see."""

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.contract.mutants import Mutant
from conformance.contract.schema import RUNGS
from conformance.faults.table import FILE_WIDTH
from conformance.mutants.judging import OURS, Outcome


def print_mutants(mutants: tuple[Mutant, ...], found: dict[str, Outcome], equivalent: set[str]) -> None:
    console = _console()
    real = [mutant for mutant in mutants if mutant.id not in equivalent]
    outcomes = [found[mutant.id] for mutant in real]
    console.print(f"{len(mutants)} mutants, {len(equivalent)} of them equivalent, {sum(o.crashed for o in outcomes)} end in an error")
    console.print(shares(outcomes, "of those that are not equivalent", "of those that give a result"))
    console.print(_by(real, found, "operator"), _by(real, found, "module"), _rungs(outcomes))
    survivors = Table("survivor", "function", "operator", "before", "after", title="seen by no check of the ladder", box=None)
    for mutant in real:
        if found[mutant.id].rung is None:
            cells = (mutant.place, mutant.function, mutant.operator, mutant.before, mutant.after)
            survivors.add_row(*(Text(cell, overflow="fold") for cell in cells))  # no markup: code has brackets
    console.print(survivors)


def print_faults(outcomes: list[Outcome]) -> None:
    console = _console()
    console.print(shares(outcomes, "of the catalogue's faults", "of those that give a result"))
    table = Table("fault", "first seen by", *outcomes[0].peers, box=None)
    for outcome in outcomes:
        table.add_row(outcome.name, outcome.seen, *("yes" if caught else "" for caught in outcome.peers.values()))
    console.print(table)


def shares(outcomes: list[Outcome], of_all: str, of_results: str) -> Table:
    """A line a check: how many it has seen, of all and of those that do not crash (a crash is seen by everybody)."""
    table = Table("check", of_all, of_results, box=None)
    results = [outcome for outcome in outcomes if not outcome.crashed]
    for name in outcomes[0].caught:
        table.add_row(name, *(_share(name, those) for those in (outcomes, results)))
    return table


def _share(name: str, outcomes: list[Outcome]) -> str:
    caught = sum(outcome.caught[name] for outcome in outcomes)
    return f"{caught} of {len(outcomes)}" + (f", {100 * caught / len(outcomes):.1f} %" if outcomes else "")


def _by(mutants: list[Mutant], found: dict[str, Outcome], what: str) -> Table:
    table = Table(what, "mutants", OURS, box=None)
    for name, count in sorted(Counter(getattr(mutant, what) for mutant in mutants).items()):
        seen = sum(found[mutant.id].rung is not None for mutant in mutants if getattr(mutant, what) == name)
        table.add_row(name, str(count), str(seen))
    return table


def _rungs(outcomes: list[Outcome]) -> Table:
    table = Table("rung that saw it first", "mutants", "an error for everybody", box=None)
    for rung in (*RUNGS, ""):
        at = [outcome.crashed for outcome in outcomes if outcome.rung == rung]
        if at:
            table.add_row(rung or "(no answer)", str(at.count(False)), str(at.count(True)))
    return table


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
