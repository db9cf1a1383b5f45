"""The report: one self-contained HTML page, verdict first. Everything that comes from a bundle is escaped."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conformance.causes import Cause, Explanation, explanations
from conformance.contract.bundle import Bundle
from conformance.contract.levels import L0, LEVELS
from conformance.contract.recipe import Recipe
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict
from conformance.recipe_diff import plan_or_problem
from conformance.report_facts import Row, digest_rows, environment_rows, recipe_rows
from conformance.report_figures import Drawing, drawings
from conformance.summary import RungSummary, count, summarise
from conformance.terminal import percent

NAME = "report.html"
TEMPLATES = Path(__file__).with_name("templates")
CAUSES_SHOWN = 3
MARKS = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INCONCLUSIVE: "?", Verdict.NOT_PROVEN: "–"}


@dataclass(frozen=True, slots=True)
class Headline:
    """`tone` is a verdict; `sentence` is for somebody who reads nothing else, `limits` what it does not say."""

    tone: Verdict
    sentence: str
    limits: str


@dataclass(frozen=True, slots=True)
class Section:
    """One rung with its findings, failures first."""

    summary: RungSummary
    about: Explanation
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class OpenChecks:
    """Checks of a rung that neither passed nor failed, for one reason."""

    rung: str
    verdict: Verdict
    reason: str
    checks: int


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template shows."""

    headline: Headline
    certificate: dict | None
    counts: dict[Verdict, int]
    sections: tuple[Section, ...]
    open_checks: tuple[OpenChecks, ...]
    figures: tuple[Drawing, ...]
    recipe: tuple[Row, ...]
    environment: tuple[Row, ...]
    digests: tuple[Row, ...]


def write_report(
    out: Path,
    findings: Sequence[Finding],
    reference: Bundle | None,
    port: Bundle | None,
    recipe: Recipe,
    certificate: dict | None,
    causes: Callable[[Finding, Sequence[Finding]], Sequence[Cause]],
) -> Path:
    """Writes `out`/report.html beside and renames it. `certificate` is its content, None when there is none; `causes` names those of
    a finding among all.
    """
    out.mkdir(parents=True, exist_ok=True)
    template = _environment(lambda finding: causes(finding, findings)).get_template("report.html.j2")
    html = template.render(page=_page(findings, reference, port, recipe, certificate))
    partial = out / f".{NAME}.partial"
    partial.write_text(html, encoding="utf-8")
    return partial.rename(out / NAME)


def headline(findings: Sequence[Finding], certificate: dict | None) -> Headline:
    total, failed, passed = len(findings), count(findings, Verdict.FAIL), count(findings, Verdict.PASS)
    if failed:
        first = next(finding.rung for finding in findings if finding.verdict is Verdict.FAIL)
        failures = f"{failed} of {total} checks failed, the first at “{first}”"
        sentence = f"The TPU port does not do the same work as the GPU recipe: {failures}."
        return Headline(Verdict.FAIL, sentence, "No speed or cost may be compared before this is mended.")
    if certificate is None:
        sentence = f"Nothing failed, but parity is not proven: {passed} of {total} checks passed, the others are open."
        return Headline(Verdict.NOT_PROVEN, sentence, "No speed or cost may be compared yet.")
    level = LEVELS[certificate["level"]]
    required = sum(finding.rung in level.rungs for finding in findings)
    sentence = f"The TPU port does the same work as the GPU recipe: all {required} required checks passed."
    return Headline(Verdict.PASS, sentence, f"Shown on {level.shown_on}: {level.proves}.{_beyond(level.name)}")


def _beyond(level: str) -> str:
    """What a level leaves open."""
    return " It says nothing yet of the claimed devices, of the full model, or of speed." if level == L0.name else ""


def _page(
    findings: Sequence[Finding], reference: Bundle | None, port: Bundle | None, recipe: Recipe, certificate: dict | None
) -> Page:
    plan, _ = plan_or_problem(recipe)
    return Page(
        headline=headline(findings, certificate),
        certificate=certificate,
        counts={verdict: count(findings, verdict) for verdict in Verdict},
        sections=tuple(_section(summary, findings) for summary in summarise(findings)),
        open_checks=_open_checks(findings),
        figures=drawings(reference, port, plan),
        recipe=recipe_rows(recipe, reference, port, plan),
        environment=environment_rows(reference, port),
        digests=digest_rows(reference, port),
    )


def _section(summary: RungSummary, findings: Sequence[Finding]) -> Section:
    own = [finding for finding in findings if finding.rung == summary.rung]
    failures_first = sorted(own, key=lambda finding: finding.verdict is not Verdict.FAIL)
    return Section(summary, explanations()[summary.rung], tuple(failures_first))


def _open_checks(findings: Sequence[Finding]) -> tuple[OpenChecks, ...]:
    """By rung and reason: one cause seldom stops one check alone."""
    undecided = (one for one in findings if one.verdict in (Verdict.NOT_PROVEN, Verdict.INCONCLUSIVE))
    groups = Counter((one.rung, one.verdict, one.reason or "no reason was given") for one in undecided)
    ran = {finding.rung for finding in findings}
    never = [OpenChecks(rung, Verdict.NOT_PROVEN, "no check ran", 0) for rung in RUNGS if rung not in ran]
    return (*(OpenChecks(*group, number_of) for group, number_of in groups.items()), *never)


def _environment(causes: Callable[[Finding], Sequence[Cause]]) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "mark": MARKS.__getitem__, "css": _css, "bar": _bar}
    environment.globals["causes"] = lambda finding: tuple(causes(finding))[:CAUSES_SHOWN]
    return environment


def number(value: float | None) -> str:
    """Three significant digits ("2.6e-6"); whole numbers in full, with thin spaces between thousands."""
    if value is None:
        return "–"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u2009")
    digits, _, exponent = f"{value:.3g}".partition("e")
    return digits + (f"e{int(exponent)}" if exponent else "")


def _css(verdict: Verdict) -> str:
    return verdict.lower().replace(" ", "-")


def _bar(used_percent: float) -> str:
    """Width of a bar: full at the limit."""
    return f"{min(used_percent, 100):.1f}%"
