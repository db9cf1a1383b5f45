"""The forms of the report: a page, one page, Markdown, LaTeX. Everything that comes from a bundle is escaped in each."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conformance.causes import Cause
from conformance.contract.whole_text import write_text
from conformance.findings import Finding, Verdict
from conformance.recipe_diff import plan_or_problem
from conformance.report import escapes
from conformance.report.drawing import Drawing, Plot, svg_of, write_pdf
from conformance.report.facts import Facts, Inputs, facts_of
from conformance.report.figures import proof_plots
from conformance.report.measured_figures import advantage_plots, claim_plots, serving_plots, training_plots
from conformance.report.names import METRICS
from conformance.terminal import percent

NAME, ONE_PAGE, MARKDOWN = "report.html", "one-page.html", "report.md"
TEMPLATES = Path(__file__).with_name("templates")
LATEX_TABLES = ("report", "claims", "ladder", "open", "recipe", "training", "serving")
LATEX = dict(block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>")
SECTIONS = ("claims", "proof", "training", "advantages", "serving")  # that have figures
CAUSES_SHOWN = 3
Causes = Callable[[Finding, Sequence[Finding]], Sequence[Cause]]
MARKS = {
    Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INCONCLUSIVE: "?", Verdict.NOT_PROVEN: "–", "REPORTABLE": "✓", "WITHHELD": "–",
    "CONSISTENT": "✓", "CONTRADICTORY": "✗", "IMPOSSIBLE": "✗",
}  # fmt: skip


def write_report(out: Path, inputs: Inputs, causes: Causes, facts: Facts | None = None) -> Path:
    """`out`/report.html. `causes` names those of a finding among all; `facts`: of `inputs`, where they are known already."""
    facts = facts or facts_of(inputs)
    drawings = {name: [svg_of(plot) for plot in plots] for name, plots in plots_of(inputs, facts).items()}
    return _write(out / NAME, page(inputs, causes, facts, drawings))


def page(inputs: Inputs, causes: Causes, facts: Facts, drawings: Mapping[str, Sequence[Drawing]]) -> str:
    """The whole page; `drawings`: by the section that shows them."""
    environment = _html()
    environment.globals["causes"] = lambda finding: tuple(causes(finding, inputs.findings))[:CAUSES_SHOWN]
    return environment.get_template("report.html.j2").render(facts=facts, drawings=drawings)


def write_one_page(out: Path, facts: Facts) -> Path:
    return _write(out / ONE_PAGE, one_page(facts))


def one_page(facts: Facts) -> str:
    return _html().get_template("one-page.html.j2").render(facts=facts)


def write_markdown(out: Path, facts: Facts) -> Path:
    return _write(out / MARKDOWN, markdown(facts))


def markdown(facts: Facts) -> str:
    """For a pull request."""
    return _environment(finalize=escapes.markdown).get_template("report.md.j2").render(facts=facts)


def write_latex(folder: Path, inputs: Inputs, facts: Facts) -> list[Path]:
    """Tables as .tex, figures as .pdf, and report.tex that takes all of them in; figures that can't be drawn are named there."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = [plot for group in plots_of(inputs, facts).values() for plot in group]
    missing = {plot.name: write_pdf(plot, folder) for plot in plots}
    environment = _environment(finalize=escapes.latex, **LATEX)
    texts = {name: environment.get_template(f"{name}.tex.j2") for name in LATEX_TABLES}
    written = [_write(folder / f"{name}.tex", one.render(facts=facts, plots=plots, missing=missing)) for name, one in texts.items()]
    return written + [folder / f"{plot.name}.pdf" for plot in plots if not missing[plot.name]]


def plots_of(inputs: Inputs, facts: Facts) -> dict[str, tuple[Plot, ...]]:
    """By section."""
    plan, _ = plan_or_problem(inputs.recipe)
    plots = (
        claim_plots(facts.claims), proof_plots(inputs.reference, inputs.port, plan), training_plots(inputs.measured),
        advantage_plots(facts.advantages), serving_plots(inputs.measured),
    )  # fmt: skip
    return {name: tuple(found) for name, found in zip(SECTIONS, plots, strict=True)}


def _html() -> Environment:
    return _environment(autoescape=True)


def _environment(**options) -> Environment:
    shared = dict(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment = Environment(**shared, keep_trailing_newline=True, **options)
    environment.filters |= {"number": number, "measure": measure, "percent": percent, "css": _css, "bar": _bar}
    environment.filters |= {"mark": MARKS.__getitem__, "metric": METRICS.__getitem__}
    return environment


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, text)


def measure(value: float | None) -> str:
    """As `number`, with its last digits also where they are 0 ("2.00"): it was measured that well."""
    return f"{value:#.3g}".rstrip(".") if value is not None and 0.01 <= abs(value) < 1000 else number(value)


def number(value: float | None) -> str:
    """Three significant digits ("2.6e-6"); whole numbers and thousands in full, with thin spaces between thousands."""
    if value is None:
        return "–"
    if abs(value) < 1e15 and (abs(value) >= 1000 or float(value).is_integer()):
        return f"{value:,.0f}".replace(",", "\u2009")
    digits, _, exponent = f"{value:.3g}".partition("e")
    return digits + (f"e{int(exponent)}" if exponent else "")


def _css(verdict: str) -> str:
    return verdict.lower().replace(" ", "-")


def _bar(used_percent: float) -> str:
    """Width of a bar: full at the limit."""
    return f"{min(used_percent, 100):.1f}%"
