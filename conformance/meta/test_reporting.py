"""What people see: the page, the ladder in the terminal, causes, the certificate."""

import re
from io import StringIO

import pytest
from rich.console import Console

from conformance.causes import explanations, likely_causes
from conformance.certificate import NAME, Certificate, Refusal, certify, read_certificate, verify, write_certificate
from conformance.contract.errors import ContractError
from conformance.contract.levels import L0, level_for
from conformance.contract.schema import RUNGS
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings, write_bundle
from conformance.pair import Pair, check_pair
from conformance.report import write_report
from conformance.summary import exit_code
from conformance.terminal import print_ladder

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def made(tmp_path_factory, recipe, plan) -> Pair:
    """A synthetic pair that no stack recorded."""
    folder = tmp_path_factory.mktemp("made")
    return Pair(recipe, *(write_bundle(folder / stack, stack, recipe, plan) for stack in ("reference", "port")))


def page(tmp_path, findings, made: Pair, certificate=None) -> str:
    path = write_report(tmp_path, findings, made.reference, made.port, made.recipe, certificate, likely_causes)
    return path.read_text()


def test_the_page_asks_for_nothing(tmp_path, made):
    """Self-contained: no script, and no address outside plain links and name spaces."""
    html = page(tmp_path, [*passing_findings(), failing_finding()], made)
    assert "<script" not in html
    assert not re.findall(r'(?:src|@import|url)\s*[=(]\s*["\']?https?:', html)
    assert html.count("<svg") >= 3


def test_the_page_escapes_what_bundles_say(tmp_path, made):
    """A hostile place or value is text, not markup."""
    html = page(tmp_path, [failing_finding(where=HOSTILE, got=HOSTILE)], made)
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ([*passing_findings(), failing_finding()], "does not do the same work"),
        ([*passing_findings()[:-2], open_finding()], "parity is not proven"),
    ],
)
def test_the_verdict_comes_first(tmp_path, made, findings, words):
    """The first heading says in one sentence what holds."""
    html = page(tmp_path, findings, made)
    assert words in html
    assert html.index(words) < html.index("Ladder") if "Ladder" in html else True


def test_a_page_without_bundles(tmp_path, made):
    """Missing bundles and rungs are said, not hidden."""
    path = write_report(tmp_path, [open_finding()], None, None, made.recipe, None, likely_causes)
    assert "not proven" in path.read_text().lower()


def test_a_certificate_needs_every_check(made):
    """All required findings PASS: a certificate with its digests. One failure, one open check or a deselection: none."""
    whole = certify(passing_findings(), made.reference, made.port, made.recipe, deselected=False)
    assert isinstance(whole, Certificate)
    assert whole.values["level"] == "L0"
    refused = {
        "failed": [*passing_findings(), failing_finding()],
        "open": [*passing_findings(), open_finding()],
        "missing": passing_findings(tuple(rung for rung in L0.rungs if rung != "merge")),
    }
    for findings in refused.values():
        assert isinstance(certify(findings, made.reference, made.port, made.recipe, deselected=False), Refusal)
    assert isinstance(certify(passing_findings(), made.reference, made.port, made.recipe, deselected=True), Refusal)
    assert isinstance(certify(passing_findings(), None, made.port, made.recipe, deselected=False), Refusal)


def test_a_stale_certificate_does_not_survive(tmp_path, made):
    """A run that refuses removes the certificate of an earlier one."""
    write_certificate(tmp_path, certify(passing_findings(), made.reference, made.port, made.recipe, deselected=False))
    assert (tmp_path / NAME).is_file()
    write_certificate(tmp_path, Refusal(("failed",)))
    assert not (tmp_path / NAME).exists()


def test_an_edited_certificate_is_seen(tmp_path, made):
    """Every digest is computed again."""
    path = write_certificate(tmp_path, certify(passing_findings(), made.reference, made.port, made.recipe, deselected=False))
    arguments = (passing_findings(), made.reference, made.port, made.recipe)
    assert verify(path, *arguments) == ()
    path.write_text(path.read_text().replace('"level":"L0"', '"level":"L2"'))
    assert verify(path, *arguments) == ("level is not what the certificate says",)
    path.write_text("{")
    with pytest.raises(ContractError, match="cannot be read"):
        read_certificate(path)


@pytest.mark.parametrize(
    ("reference", "port", "large", "level"),
    [
        ("cpu", "cpu", False, "L0"),
        ("NVIDIA H100 80GB HBM3", "TPU v5p", False, "L1"),
        ("NVIDIA H100 80GB HBM3", "TPU v5p", True, "L2"),
        ("NVIDIA H100 80GB HBM3", "cpu", True, "L0"),
        ("TPU v5p", "NVIDIA H100 80GB HBM3", True, "L0"),
    ],
)
def test_levels(reference, port, large, level):
    """L1 and L2 need the reference on a GPU and the port on a TPU."""
    assert level_for(reference, port, large=large).name == level


def test_swapped_and_foreign_bundles_are_refused(made, recipe, plan, tmp_path):
    """A bundle given as the other stack's, or of another recipe, is named."""
    with pytest.raises(ContractError, match="recorded by stack 'port', given as the reference"):
        check_pair(Pair(recipe, made.port, made.reference))
    other = write_bundle(tmp_path / "other", "port", recipe, plan)
    other.manifest["recipe_sha256"] = "0" * 64
    with pytest.raises(ContractError, match="recorded from another recipe or other rows"):
        check_pair(Pair(recipe, made.reference, other))


def printed(findings) -> str:
    console = Console(file=StringIO(), width=100, no_color=True)
    print_ladder(findings, console)
    return console.file.getvalue()


def test_the_terminal_shows_the_ladder():
    """Every rung has a line; failures come with place and values; open rungs with their reason."""
    text = printed([*passing_findings(("tokens",)), failing_finding(), open_finding()])
    assert all(rung in text for rung in RUNGS)
    for word in ("0.14423", "layers.3.mlp.up_proj", "not built yet", "parity explain adapters"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100 or "0.14423" in text


def test_exit_codes():
    """0 only when every required rung passed; 1 on a failure; 3 when something is open."""
    assert exit_code(passing_findings()) == 0
    assert exit_code([*passing_findings(), failing_finding()]) == 1
    assert exit_code([*passing_findings(), open_finding("merge")]) == 3
    assert exit_code(passing_findings(("tokens",))) == 3


def test_every_built_rung_is_explained():
    """Each rung with checks has a promise, how it is judged and causes with their mend."""
    for rung in L0.rungs:
        about = explanations()[rung]
        assert about.promise
        assert about.judged
        assert all(cause.mend for cause in about.causes)


def test_the_signature_orders_the_causes():
    """A spread 2.449 times too wide names Qwix's initialiser first; another rung's finding does not."""
    assert "he_uniform" in str(likely_causes(failing_finding(measured=1.449))[0])
    assert "he_uniform" not in str(likely_causes(failing_finding(rung="tokens")))
