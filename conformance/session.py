"""The end of a session: rungs without checks, findings, certificate, report, and the ladder on the terminal."""

from pathlib import Path

import pytest
from rich.console import Console

from conformance.certificate import Refusal, certify, write_certificate
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict
from conformance.terminal import print_ladder, print_not_recorded


def unbuilt(findings: list[Finding], *, deselected: bool) -> list[Finding]:
    """One NOT PROVEN finding for every rung that had no check in this session."""
    reason = "deselected in this run" if deselected else "this suite has no checks for it yet"
    seen = {finding.rung for finding in findings}
    return [
        Finding(rung, "none", f"The {rung} rung holds.", Verdict.NOT_PROVEN, reason=reason)
        for rung in RUNGS
        if rung not in seen
    ]


def finish(session: pytest.Session) -> None:
    """Nothing is written or printed for a session that ran no check of the ladder."""
    config, ladder = session.config, session.config.ladder
    if not ladder.findings:
        return
    ladder.findings += unbuilt(ladder.findings, deselected=ladder.deselected)
    console = Console()
    console.print()
    out = config.getoption("--out")
    if out:
        _write(config, ladder, out, console)
    print_ladder(ladder.findings, console)
    if pair := getattr(config, "pair", None):
        print_not_recorded((pair.reference, pair.port), console)


def _write(config: pytest.Config, ladder, out: Path, console: Console) -> None:
    """Findings always; certificate and report when both bundles could be opened."""
    from conformance.causes import likely_causes  # matplotlib takes a second: only where a report is written
    from conformance.report.facts import Inputs
    from conformance.report.forms import write_report

    ladder.save(out)
    pair = getattr(config, "pair", None)
    reference, port, recipe = (pair.reference, pair.port, pair.recipe) if pair else (None, None, None)
    result = certify(ladder.findings, reference, port, recipe, deselected=ladder.deselected)
    path = write_certificate(out, result)
    values = None if isinstance(result, Refusal) else result.values
    if pair:
        inputs = Inputs(recipe, ladder.findings, reference, port, values)
        console.print(f"report: {write_report(out, inputs, likely_causes)}")
    console.print(f"certificate: {path}" if path else f"no certificate: {'; '.join(result.reasons[:3])}", soft_wrap=True)
