"""The report of all that can be shown: forms agree, the first screen tells verdict, level and claims, ratios are the gate's."""

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scipy.stats import gmean

from conformance.bench.speed_of_light import bounds_of, read_machine
from conformance.bench.synthetic_sweep import MODEL
from conformance.bench.synthetic_training import Scene, write_training
from conformance.bench.training.records import Launch
from conformance.cli import main
from conformance.gate.evidence import Given
from conformance.gate.gate import judge
from conformance.gate.synthetic import as_served
from conformance.package.contents import contents_of
from conformance.report.facts import facts_of
from conformance.report.measured import Measured, measured_of
from conformance.report.serving import advantages
from conformance.report.training import training_facts
from conformance.saved import FINDINGS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FRAME = """<iframe width="{width}" height="{height}" srcdoc="{page}"></iframe><p id="found"></p><script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  const bottom = (query) => page.querySelector(query).getBoundingClientRect().bottom;
  const found = {{width: page.documentElement.scrollWidth, header: bottom("header"), claim: bottom("#claims tbody tr"),
    claims: bottom("#claims")}};
  document.querySelector("#found").textContent = JSON.stringify(found);
}});
</script>"""


@pytest.fixture(scope="module")
def contents(packed):
    return contents_of(packed)


@pytest.fixture(scope="module")
def served(contents):
    """(inputs, facts) as if the pair had been served: a machine may lack vLLM, and claims about a server need that rung."""
    measured, claims = contents.inputs.measured, contents.inputs.claims
    evidence = dataclasses.replace(measured.evidence, proofs=tuple(map(as_served, measured.evidence.proofs)))
    changes = {"measured": dataclasses.replace(measured, evidence=evidence), "gate": judge(claims, evidence)}
    inputs = dataclasses.replace(contents.inputs, **changes)
    return inputs, facts_of(inputs)


def browser(folder: Path, *options: str) -> str:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def measured_in_browser(page: str, width: int, height: int, folder: Path) -> dict[str, float]:
    """Where the bottom of each part is, and how wide the page is, in CSS pixels."""
    (folder / "frame.html").write_text(FRAME.format(width=width, height=height, page=html.escape(page)))
    dom = browser(folder, "--dump-dom", (folder / "frame.html").as_uri())
    return json.loads(html.unescape(re.search(r'<p id="found">(.*?)</p>', dom)[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="NOT PROVEN: no Chromium here to lay the page out")
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("name", ["report.html", "one-page.html"])
def test_the_first_screen_tells_verdict_level_and_claims(packed, contents, tmp_path, name, width, height):
    """Laid out, without the figures: header and claims come first, and nothing is wider than the screen."""
    page = re.sub(r"<figure>.*?</figure>", "", (packed / name).read_text(), flags=re.DOTALL)
    found = measured_in_browser(page, width, height, tmp_path)
    assert found["header"] < found["claim"] <= height
    assert found["width"] <= width
    assert width < 1000 or found["claims"] <= height
    header = page[page.index("<header") : page.index("</header>")]
    assert all(words in header for words in ("does the same work", "Certificate L0", f"{contents.facts.claims.reportable} of 5 claims"))


@pytest.mark.skipif(CHROMIUM is None, reason="NOT PROVEN: no Chromium here to lay the page out")
def test_a_page_that_is_too_wide_or_too_late_would_be_seen(packed, tmp_path):
    """Control: a line that does not break, and a header that fills the screen."""
    page = (packed / "one-page.html").read_text()
    wide = page.replace("<header", f'<pre style="overflow:visible">{"x" * 900}</pre><div style="height:900px"></div><header')
    found = measured_in_browser(wide, 390, 844, tmp_path)
    assert found["width"] > 390 and found["claim"] > 844


@pytest.mark.skipif(CHROMIUM is None, reason="NOT PROVEN: no Chromium here to print the page")
def test_one_page_is_one_page_of_paper(packed, tmp_path):
    """Printed; the whole report, which is the control, takes more."""
    assert pages_printed(packed / "one-page.html", tmp_path) == 1
    assert pages_printed(packed / "report.html", tmp_path) > 5


def pages_printed(page: Path, folder: Path) -> int:
    target = folder / "printed.pdf"
    browser(folder, "--no-pdf-header-footer", f"--print-to-pdf={target}", page.as_uri())
    return len(re.findall(rb"/Type\s*/Page[^s]", target.read_bytes()))


def test_all_forms_state_the_same(packed, contents):
    """Sentence, level, and each claim with its verdict; the ratio in the same digits."""
    facts = contents.facts
    for name in ("report.html", "one-page.html", "report.md"):
        text = html.unescape((packed / name).read_text()).replace("\\", "").replace("@\u200b", "@")
        assert facts.headline.sentence in text and f"Certificate {facts.level.name}" in text
        for claim in facts.claims.claims:
            assert re.search(rf"{re.escape(claim.name)}.{{0,400}}?{claim.verdict}", text, re.DOTALL), (name, claim.name)
        assert "1.97" in text


def test_a_claim_is_marked_with_the_speed_of_light(served):
    """TTFT: what the reference took over the least that the port's machine can take."""
    inputs, facts = served
    claims = {one.name: one for one in facts.claims.claims}
    claim, evaluated = claims["TTFT at 10/s"], claims["pass@1"]
    sweep = inputs.measured.evidence.sweeps.by_stack["port"]
    cell = next(one for one in sweep.plan.cells if one.mode == "open" and one.level == 10)
    least_ms = bounds_of(read_machine("v6e-8"), MODEL.served({}), cell, cell.output_tokens).ttft_ms
    (result,) = [one for one in inputs.gate.claims if one.claim.name == claim.name]
    assert claim.fastest == pytest.approx(gmean(result.numerator) / least_ms, rel=1e-6)
    assert claim.fastest > claim.value
    assert evaluated.fastest is None and evaluated.value is None


def test_an_advantage_is_what_the_gate_lets_through(served, scene):
    """A cell's ratio is that of a claim about it; without bundles every one is withheld, with the reason."""
    _, facts = served
    (one,) = [one for one in facts.advantages if one.metric == "ttft_ms" and "open-10" in one.cell]
    (claim,) = [one for one in facts.claims.claims if one.name == "TTFT at 10/s"]
    assert one.ratio == pytest.approx(claim.value) and one.low > claim.low  # of one claim, not of five
    unproven = advantages(measured_of(dataclasses.replace(scene[0], pairs=())))
    assert len(unproven) == len(facts.advantages)
    assert all(one.ratio is None and any("no bundles were given" in reason for reason in one.reasons) for one in unproven)


def test_every_training_figure_has_its_unit(packed):
    page = (packed / "report.html").read_text()
    for row in ("step, median, ms", "step, mean, ms", "tokens, 1/s", "whole launch, s"):
        assert f'<th scope="row">{row}</th>' in page


def test_failed_launches_are_named_and_never_averaged(plan, tmp_path):
    """A slow launch that failed is told with its reason; the mean is that of the others."""

    def fail(launch: Launch) -> Launch:
        return dataclasses.replace(launch, outcome="failed", reason="out of memory") if launch.number == 3 else launch

    one = write_training(tmp_path / "port", plan, Scene(step_ms=(100.0, 100.0, 900.0), change_launch=fail))
    (port,) = training_facts(Measured((("port", one),)))
    assert port.launches == {"ok": 2, "failed": 1}
    assert port.not_whole == ("launch 3 failed: out of memory",)
    assert port.estimate("step, mean").value == pytest.approx(100.0) and port.estimate("step, mean").n == 2


def test_the_report_is_told_by_the_command(packed, scene, tmp_path, capsys):
    """All options at once, from the folder of an earlier check; claims that are not there are refused in one line."""
    given, claims = scene
    out, files = tmp_path / "out", given.pairs[0]
    out.mkdir()
    for name in (FINDINGS, "certificate.json"):
        shutil.copy(packed / name, out / name)
    pair = ["--recipe", str(files.recipe), "--reference-bundle", str(files.reference), "--port-bundle", str(files.port)]
    evidence = ["--measurements", *map(str, given.measurements), "--prices", str(given.prices), "--tuning", str(given.tuning)]
    arguments = ["report", "--out", str(out), *pair, *evidence]
    assert main([*arguments, "--claims", str(claims), "--one-page", "--markdown", "--latex", str(tmp_path / "tex")]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    tables = {f"{name}.tex" for name in ("report", "claims", "ladder", "open", "recipe", "training", "serving")}
    assert {"one-page.html", "report.md", "claims.pdf", "loss.pdf", "by-rate.pdf", *tables} <= written
    assert "{by-rate}" in (tmp_path / "tex" / "report.tex").read_text()
    assert (out / "one-page.html").read_text() == (packed / "one-page.html").read_text()
    assert main([*arguments, "--claims", str(tmp_path / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_nothing_measured_is_nothing_stated():
    measured = measured_of(Given())
    assert measured.trainings == measured.sweeps == () and advantages(measured) == ()
