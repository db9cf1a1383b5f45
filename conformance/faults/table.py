"""What `tox -e faults` prints: a line a fault, then the smallest sizes that are caught."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.faults.diagnosis import diagnose_all, lines
from conformance.faults.judging import Outcome, smallest

FILE_WIDTH = 220  # characters: a table in a file is not folded at 80
STYLES = {True: "green", False: "bold red"}


def print_tables(outcomes: list[Outcome], alarms: list[str]) -> None:
    console = _console()
    for alarm in alarms:
        console.print(Text(f"false alarm without a fault: {alarm}", style=STYLES[False]))
    console.print(_table("planted faults", outcomes))
    console.print(_table("the smallest size of its kind that is caught", smallest(outcomes)))
    open_ = [outcome for outcome in outcomes if outcome.not_proven]
    missed = [outcome.fault.id for outcome in outcomes if not outcome.as_expected and not outcome.not_proven]
    console.print(Text(f"{len(outcomes) - len(missed) - len(open_)} of {len(outcomes)} faults caught where the catalogue says"))
    if open_:
        console.print(Text(f"NOT PROVEN: {len(open_)}: {open_[0].not_proven}", style="yellow"))
    if missed:
        console.print(Text(f"not so: {', '.join(missed)}", style=STYLES[False]))


def print_diagnosis(outcomes: list[Outcome], recipe: str) -> None:
    """By all checks of the rung, as `parity explain` has them, and at the first failure, as its message has it."""
    console = _console()
    for title, whole in (("by all checks of the rung", True), ("at the first failure", False)):
        console.print(Text(f"\ndiagnosis {title}", style="bold"))
        for line in lines(diagnose_all(outcomes, recipe, whole=whole)):
            console.print(Text(line))


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)


def _table(title: str, outcomes: Iterable[Outcome]) -> Table:
    columns = ("fault", "caught by", "as expected", "% of limit", "not run", "where")
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for outcome in outcomes:
        table.add_row(*(Text(cell, style="" if outcome.as_expected else STYLES[False], overflow="fold") for cell in cells(outcome)))
    return table


def cells(outcome: Outcome) -> tuple[str, ...]:
    if outcome.not_proven:
        return outcome.fault.id, "NOT PROVEN", "", "", "", outcome.not_proven
    caught = f"{outcome.rung} / {outcome.check}" if outcome.rung else "not caught"
    used = "" if outcome.used_percent is None else f"{outcome.used_percent:.4g}"
    expected = "yes" if outcome.as_expected else f"no: {outcome.fault.rung} / {outcome.fault.check}"
    not_run = f"{outcome.not_run[0]} to {outcome.not_run[-1]}" if outcome.not_run else ""
    return outcome.fault.id, caught, expected, used, not_run, outcome.where
