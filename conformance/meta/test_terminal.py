"""The ladder in the terminal reads in 100 columns and without colour."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from conformance.contract.schema import RUNGS
from conformance.findings import Verdict
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED, exit_code, summarise
from conformance.terminal import percent, print_ladder, print_not_recorded


def printed(findings, *, color: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=color, color_system="standard" if color else None)
    print_ladder(findings, console)
    return console.file.getvalue()


def test_every_rung_has_one_line():
    """Verdict, checks passed, use of the limit and place, in order."""
    lines = printed(passing_findings()).splitlines()
    ladder = [line.split()[0] for line in lines if line.split() and line.split()[0] in RUNGS]
    assert ladder == list(RUNGS)
    assert re.search(r"^logits +PASS +2/2 +60 % +base, layer 5 attention", "\n".join(lines), re.M)


def test_it_fits_and_needs_no_colour():
    text = printed([*passing_findings(("tokens",)), failing_finding(where="x" * 300), open_finding()])
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert "\x1b" in printed(passing_findings(), color=True)


def test_failures_and_reasons_are_told():
    """A failure says where, expected and got; what is open says why."""
    text = printed([failing_finding(), open_finding(reason="not built yet")])
    for part in ("port, layers.3.mlp.up_proj", "0.0589", "0.14423", "parity explain adapters", "sharding: not built yet"):
        assert part in text
    assert text.rstrip().endswith("0 pass, 1 fail, 0 inconclusive, 1 not proven")


def test_what_a_stack_could_not_do_is_told():
    """In the error's own words; nothing for a stack that could do all."""
    bundles = [SimpleNamespace(stack=stack, not_recorded=parts) for stack, parts in (("reference", {}), ("port", {"merge": "[x]"}))]
    console = Console(file=io.StringIO(), width=100)
    print_not_recorded(bundles, console)
    assert console.file.getvalue() == "port could not record merge: [x]\n"


def test_brackets_are_text():
    """A place such as [0, 3] or [bold] is printed, not taken for markup."""
    assert "row [0, 3] [bold]" in printed([failing_finding(where="row [0, 3] [bold]")])


def test_the_worst_finding_gives_the_place():
    """A failure outranks a larger share of a limit."""
    rung = summarise([*passing_findings(("adapters",)), failing_finding(limit=0.0, measured=1.0)])[RUNGS.index("adapters")]
    assert (rung.verdict, rung.passed, rung.total) == (Verdict.FAIL, 2, 3)
    assert rung.where.startswith("port, layers.3")
    assert rung.used_percent == pytest.approx(60.5, abs=0.1)


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        (passing_findings(), ALL_PASS),
        ([*passing_findings(), open_finding("serving")], ALL_PASS),
        ([*passing_findings(), open_finding("sharding")], NOT_DECIDED),
        (passing_findings(("tokens", "batches")), NOT_DECIDED),
        ([], NOT_DECIDED),
        ([*passing_findings(), open_finding(), failing_finding()], CHECK_FAILED),
        ([*passing_findings(), failing_finding("serving")], CHECK_FAILED),
    ],
)
def test_the_exit_code_follows_the_findings(findings, code):
    assert exit_code(findings) == code


def test_shares_of_a_limit_read_well():
    assert [percent(value) for value in (None, 0.004, 61.4, 310.0, 25000.0)] == ["exact", "0.004 %", "61 %", "310 %", "250 x"]
