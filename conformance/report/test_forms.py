"""Forms of the report: nothing of a bundle or a claim becomes markup in any of them, and they lay out the same facts."""

import re
from pathlib import Path

import pytest

from conformance.claims.claims_file import Claim, ClaimsFile
from conformance.gate.results import ClaimResult, ClaimVerdict, GateResult, Level
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings
from conformance.report import escapes, forms
from conformance.report.claims import claims_of
from conformance.report.drawing import Missing, Plot, svg_of, write_pdf
from conformance.report.facts import Inputs, facts_of
from conformance.report.measured import Advantage
from conformance.report.measured_figures import advantage_plots, claim_plots
from conformance.statistics import Ratio

HOSTILE = '<script>alert("x")</script> | `x` [a](http://b) @all #1 \\input{/etc/passwd} $x$ 100% a_b ^~&{}'
UNESCAPED = re.compile(r"(?<!\\)[$&#%_{}]|\\(?!textbackslash|text|ensuremath|[$&#%_{}, ])")  # in words of a LaTeX text
CLAIM = {"metric": "training_time", "numerator": "reference", "denominator": "port", "stated": "1.61", "kind": "at_least"}
LOW = Level("L0", "0" * 64, ("L1 is needed",), (), ("cpu", "cpu"))
SHARED = "level too low: L1 is needed"


def claim(name: str, **changes) -> Claim:
    return Claim(name=name, source="here", **CLAIM | changes)


def result(name: str, measured: Ratio | None = None, reasons: tuple[str, ...] = (), **changes) -> ClaimResult:
    verdict = ClaimVerdict.WITHHELD if reasons else ClaimVerdict.REPORTABLE
    return ClaimResult(claim(name, **changes), verdict, measured, reasons, confidence=0.95)


RATIO = Ratio(1.7, 1.66, 1.74, 1.67, (5, 5), 1.73)
RESULTS = (result("one", None, (SHARED, "no ledger")), result("two", None, (SHARED,)), result("three", RATIO, (SHARED, "not reached")))


@pytest.fixture
def inputs(recipe):
    def make(results=RESULTS, findings=None) -> Inputs:
        file = ClaimsFile(Path("claims.toml"), {}, tuple(one.claim for one in results), ())
        gate = GateResult(tuple(results), (LOW,))
        return Inputs(recipe, passing_findings() if findings is None else findings, claims=file, gate=gate)

    return make


def test_reasons_that_all_claims_have_are_told_once(inputs):
    claims = facts_of(inputs()).claims
    assert claims.general == (SHARED,)
    assert [one.reasons for one in claims.claims] == [("no ledger",), (), ("not reached",)]
    assert claims.reportable == 0
    alone = facts_of(inputs(RESULTS[:1])).claims
    assert alone.general == () and alone.claims[0].reasons == (SHARED, "no ledger")


def test_the_bound_is_the_end_that_is_held_against_the_claim():
    """The lower end of `at least`, the upper one of `at most`."""
    results = result("least", RATIO), result("most", RATIO, kind="at_most")
    file = ClaimsFile(Path(), {}, tuple(one.claim for one in results), ())
    found = claims_of(file, GateResult(results), {"most": 9.0})
    assert [one.bound for one in found.claims] == [1.67, 1.73]
    assert [one.fastest for one in found.claims] == [None, 9.0]
    assert found.reportable == 2


def test_no_claims_are_said_to_be_none(recipe):
    facts = facts_of(Inputs(recipe, passing_findings()))
    assert facts.claims is None
    assert "No claims were given" in forms.one_page(facts) and "No claims were given" in forms.markdown(facts)


def test_claims_come_before_the_ladder(inputs):
    for text in (forms.one_page(facts_of(inputs())), forms.markdown(facts_of(inputs()))):
        assert text.index("0 of 3 claims") < text.index("three") < text.index("tokens")


def hostile(inputs) -> Inputs:
    findings = [failing_finding(where=HOSTILE, promise=HOSTILE, unit=HOSTILE), open_finding(reason=HOSTILE)]
    return inputs((result(HOSTILE, RATIO, (HOSTILE,)), result("other", None, ("no",))), findings)


def test_hostile_text_is_plain_text_on_one_page(inputs):
    page = forms.one_page(facts_of(hostile(inputs)))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 3


def test_hostile_text_is_plain_text_in_markdown(inputs):
    """No HTML, no link, no mention, no code, and no cell more than the head of its table has."""
    text = forms.markdown(facts_of(hostile(inputs)))
    assert "<script" not in text and "@all" not in text and "://" not in text
    assert not re.search(r"(?<!\\)[`\[]", text.replace("<details>", ""))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) > 10
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {5}


def test_hostile_text_is_plain_text_in_latex(inputs, tmp_path):
    """Each special character is escaped; each row has as many cells as its table."""
    written = forms.write_latex(tmp_path, hostile(inputs), facts_of(hostile(inputs)))
    claims = (tmp_path / "claims.tex").read_text()
    assert r"\textbackslash{}input\{/etc/passwd\}" in claims and r"100\%" in claims and r"a\_b" in claims
    for name in ("claims", "ladder", "open"):
        rows = [line for line in (tmp_path / f"{name}.tex").read_text().splitlines() if line.endswith(r"\\")]
        assert rows and {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    report = (tmp_path / "report.tex").read_text()
    assert report.count(r"\begin{figure}") == 1 and r"\includegraphics" in report and "not drawn, no bundle of the reference" in report
    assert [path.name for path in written if path.suffix == ".pdf"] == ["claims.pdf"]
    assert (tmp_path / "claims.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("text", [HOSTILE, "±·×–“”≤ 1 000", "\x07 ünï 中"])
def test_latex_has_no_special_character_left(text):
    words = re.sub(r"\\(text\w+|ensuremath)(\{[^{}]*\})?|\{[-[*]\}", "", escapes.latex(text))
    assert "[" not in words and "*" not in words  # options of the line break before them
    assert UNESCAPED.search(words) is None


@pytest.mark.parametrize("text", ["a_b", "50 %", "a & b", r"\x", "{", "#"])
def test_an_unescaped_character_would_be_seen(text):
    """Control of the pattern above."""
    assert UNESCAPED.search(text)


def test_templates_own_words_are_not_escaped(inputs):
    assert "|---|---:|" in forms.markdown(facts_of(inputs()))


@pytest.mark.parametrize(
    ("value", "number", "measure"),
    [(2.0, "2", "2.00"), (1.699, "1.7", "1.70"), (0.0, "0", "0"), (12345.6, "12\u2009346", "12\u2009346"), (2.6e-6, "2.6e-6", "2.6e-6"),
     (float("nan"), "nan", "nan"), (None, "–", "–"), (345_600, "345\u2009600", "345\u2009600"), (250.0, "250", "250")],
)  # fmt: skip
def test_numbers_read_well(value, number, measure):
    assert (forms.number(value), forms.measure(value)) == (number, measure)


def test_a_figure_is_the_same_each_time_or_says_what_it_lacks(inputs, tmp_path):
    """SVG and PDF, byte for byte; nothing is written of one that lacks something."""
    (plot,) = claim_plots(facts_of(inputs()).claims)
    assert svg_of(plot) == svg_of(plot) and "three" in svg_of(plot).svg
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert write_pdf(plot, tmp_path / name) == ""
    assert (tmp_path / "a/claims.pdf").read_bytes() == (tmp_path / "b/claims.pdf").read_bytes()

    def lacking():
        raise Missing("everything")

    empty = Plot("empty", "", "", lacking)
    assert svg_of(empty).missing == write_pdf(empty, tmp_path) == "everything"
    assert not (tmp_path / "empty.pdf").exists()


@pytest.mark.parametrize("name", ["$\\frac$ of a name", "x" * 500])
def test_a_name_beside_an_axis_is_plain_text(inputs, name):
    """No formula in it, and it leaves room for the axis."""
    (plot,) = claim_plots(facts_of(inputs((result(name, RATIO),))).claims)
    assert name[:9] in svg_of(plot).svg


def test_a_withheld_advantage_is_not_drawn():
    """One that is given is; of a metric without any, the figure says so."""
    given = Advantage("a", "cell-1", "ttft_ms", 1.5, 1.4, 1.6)
    withheld = Advantage("b", "cell-2", "ttft_ms", reasons=("saturated",))
    (drawn,), (none,) = advantage_plots((given, withheld)), advantage_plots((withheld,))
    assert "cell-2" in svg_of(drawn).svg
    assert "withheld" in svg_of(none).missing
