"""The ladder in the terminal: one line a rung, then what was not proven, then what failed. Needs 100 columns and no colour."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.contract.bundle import Bundle
from conformance.findings import Finding, Verdict
from conformance.judge import explain
from conformance.summary import RungSummary, count, summarise

STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "yellow", Verdict.NOT_PROVEN: "dim"}


def print_ladder(findings: Sequence[Finding], console: Console) -> None:
    rungs = summarise(findings)
    console.print(_table(rungs))
    _print_open_rungs(rungs, console)
    for finding in findings:
        if finding.verdict is Verdict.FAIL:
            console.print(Text("\n" + explain(finding, findings)))
    console.print(Text("\n" + counts_line(findings), style="bold"))


def print_not_recorded(bundles: Iterable[Bundle], console: Console) -> None:
    """What a stack could not do, in its own words."""
    for bundle in bundles:
        for part, error in bundle.not_recorded.items():
            console.print(Text(f"{bundle.stack} could not record {part}: {error}"))


def counts_line(findings: Sequence[Finding]) -> str:
    """How many checks had which verdict, in words."""
    return ", ".join(f"{count(findings, verdict)} {verdict.lower()}" for verdict in Verdict)


def percent(value: float | None) -> str:
    """Share of a limit; from ten times the limit on as a multiple; "exact" where there is no limit to use up."""
    if value is None:
        return "exact"
    if value >= 1000:
        return f"{value / 100:.3g} x"
    return f"{value:.0f} %" if value >= 1 else f"{value:.1g} %"


def _table(rungs: Sequence[RungSummary]) -> Table:
    table = Table(title="Parity ladder", title_justify="left", header_style="bold", box=None, pad_edge=False)
    table.add_column("rung", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("checks", justify="right", no_wrap=True)
    table.add_column("of limit", justify="right", no_wrap=True)
    table.add_column("where it is worst", overflow="fold")
    for rung in rungs:
        table.add_row(*_row(rung))
    return table


def _row(rung: RungSummary) -> tuple[Text, ...]:
    """Cells as plain text: places and reasons come from bundles and may hold anything, brackets included."""
    checks = f"{rung.passed}/{rung.total}" if rung.total else "-"
    used = percent(rung.used_percent) if rung.passed or rung.used_percent is not None else "-"
    cells = (rung.rung, checks, used, rung.where)
    name, checks, used, where = map(Text, cells)
    return name, Text(rung.verdict, style=STYLES[rung.verdict]), checks, used, where


def _print_open_rungs(rungs: Sequence[RungSummary], console: Console) -> None:
    """Reasons of everything that is neither PASS nor FAIL."""
    unproven = [rung for rung in rungs if rung.reasons and rung.verdict in (Verdict.NOT_PROVEN, Verdict.INCONCLUSIVE)]
    if unproven:
        console.print(Text("\nNot decided"))
    for rung in unproven:
        console.print(Text(f"  {rung.rung}: {'; '.join(rung.reasons)}"))
