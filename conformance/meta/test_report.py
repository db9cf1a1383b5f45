"""The report: verdict first, self-contained, escaped, and whole also where parts are missing."""

import re

import pytest

from conformance.causes import likely_causes
from conformance.certificate import certify
from conformance.findings import Verdict
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings, write_bundle
from conformance.report.drawing import Drawing, svg_of
from conformance.report.facts import Inputs, headline
from conformance.report.figures import proof_plots
from conformance.report.forms import number, write_report

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'
# What makes a browser fetch something. xmlns declarations name a vocabulary and fetch nothing.
REQUEST = re.compile(
    r"""<(script|link|iframe|object|embed|img|image|video|audio)\b|\bsrc\s*=|@import|url\((?!#)|xlink:href="(?!#)""", re.I
)


@pytest.fixture(scope="module")
def bundles(recipe, plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    return tuple(write_bundle(folder / stack, stack, recipe, plan) for stack in ("reference", "port"))


def page(folder, recipe, findings, bundles=(None, None), certificate=None) -> str:
    return write_report(folder, Inputs(recipe, findings, *bundles, certificate), likely_causes).read_text()


def drawings(reference, port, plan) -> tuple[Drawing, ...]:
    return tuple(svg_of(plot) for plot in proof_plots(reference, port, plan))


def test_a_whole_run_reads_as_proven(tmp_path, recipe, bundles):
    """All passed: the sentence says so, all four figures are drawn, both sides' facts are there."""
    findings = passing_findings()
    certificate = certify(findings, *bundles, recipe, deselected=False).values
    html = page(tmp_path, recipe, findings, bundles, certificate)
    assert "does the same work as the GPU recipe: all 26 required checks passed" in html
    assert "Certificate L0" in html
    assert html.count("<svg") == 4
    for fact in ("tokens per update (recorded)", "345,600", "33,920", "versions.jax", bundles[0].manifest["plan_sha256"]):
        assert fact in html


def test_a_failure_comes_first_with_its_causes(tmp_path, recipe, bundles):
    """One failure turns the sentence, and shows expected, got, the likely cause and how to reproduce it."""
    html = page(tmp_path, recipe, [*passing_findings(("tokens",)), failing_finding()], bundles)
    assert "does not do the same work as the GPU recipe: 1 of 3 checks failed, the first at “adapters”" in html
    assert "No certificate" in html
    for text in ("0.0589", "0.14423", "lora_a_initializer", "parity check --only adapters"):
        assert text in html


def test_what_is_open_is_not_called_proven(tmp_path, recipe):
    """Not proven is neither success nor failure, and the reason is shown."""
    findings = [*passing_findings(("tokens",)), open_finding(reason="no eight devices here")]
    html = page(tmp_path, recipe, findings)
    assert "parity is not proven: 2 of 3 checks passed" in html
    assert "no eight devices here" in html
    assert headline(findings, None).tone is Verdict.NOT_PROVEN


def test_passing_checks_without_a_certificate_are_not_called_proven():
    """Control: a run whose checks all passed but that was refused a certificate doesn't claim parity."""
    assert headline(passing_findings(), None).tone is Verdict.NOT_PROVEN


def test_the_page_fetches_nothing(tmp_path, recipe, bundles):
    """No request of any kind, with all figures in it."""
    assert REQUEST.search(page(tmp_path, recipe, passing_findings(), bundles)) is None


@pytest.mark.parametrize(
    "request_", ['<script src="x.js">', '<link href="a.css">', "url(http://a/b.png)", '<use xlink:href="a.svg#b"/>']
)
def test_a_request_would_be_seen(request_):
    """Control: the pattern of the test above sees requests."""
    assert REQUEST.search(request_)


def test_hostile_text_is_escaped(tmp_path, recipe):
    """Text of a bundle or a finding can't become part of the page."""
    hostile = failing_finding(where=HOSTILE, expected=HOSTILE, got=HOSTILE, check=HOSTILE, promise=HOSTILE, unit=HOSTILE)
    html = page(tmp_path, recipe, [hostile, open_finding(reason=HOSTILE)])
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html


def test_missing_parts_are_named(bundles, plan, tmp_path, recipe):
    """Without a bundle, a rung or the recipe's rows each figure says what it lacks."""
    assert {figure.missing for figure in drawings(None, bundles[1], plan)} == {"no bundle of the reference"}
    assert {figure.missing for figure in drawings(*reversed(bundles), plan)} >= {"the port recorded no f64 run"}
    unread = [figure.missing for figure in drawings(*bundles, None)]
    assert unread[:2] == ["", ""] and "cannot be read here" in unread[2]
    assert "No check ran" in page(tmp_path, recipe, [])


def test_the_same_run_gives_the_same_figures(bundles, plan):
    """Two drawings of one pair are equal byte for byte; another pair's are not."""
    first, again, other = drawings(*bundles, plan), drawings(*bundles, plan), drawings(bundles[0], bundles[0], plan)
    assert first == again
    assert first[0].svg != other[0].svg


def test_numbers_read_well():
    assert [number(value) for value in (None, 0.0, 2.6e-6, 12345.0, 0.25)] == ["–", "0", "2.6e-6", "12\u2009345", "0.25"]
