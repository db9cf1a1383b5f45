"""What bundles prove: computed from them, by the whole ladder, whatever a certificate or a findings file says."""

from dataclasses import replace

import pytest

from conformance.certificate import certify, findings_digest, write_certificate
from conformance.checks import checks
from conformance.contract.errors import ContractError
from conformance.faults.grounds import fixtures
from conformance.findings import Verdict
from conformance.gate.conftest import copy_linked, rewrite
from conformance.gate.proof import Files, Proof, certificate_reasons, claim_reasons, findings_of, level_of_pair, prove
from conformance.gate.results import ClaimVerdict
from conformance.gate.synthetic import TIME, as_served, edit_json
from conformance.meta.controls import CONTROLS
from conformance.meta.tamper import Tampered


@pytest.fixture
def certificate(proof, tmp_path):
    """Path of the pair's own."""
    made = certify(proof.level.findings, proof.pair.reference, proof.pair.port, proof.pair.recipe, deselected=False)
    return write_certificate(tmp_path, made)


@pytest.fixture(scope="module")
def failed(proof) -> Proof:
    """The same pair, but for one token of the port."""
    change = CONTROLS["test_token_ids_are_equal"]
    pair = replace(proof.pair, **{change.stack: Tampered(getattr(proof.pair, change.stack), change)})
    return Proof(level_of_pair(pair, findings_of(pair, fixtures(proof.pair))), pair, proof.plan)


class Without:
    """Reads like the bundle, without one rung."""

    def __init__(self, bundle, rung: str):
        self._bundle, self._rung = bundle, rung

    def __getattr__(self, name: str):
        return getattr(self._bundle, name)

    def has(self, rung: str) -> bool:
        return rung != self._rung and self._bundle.has(rung)


def test_every_check_of_the_ladder_is_judged(proof):
    """All of them, and nothing is open but what nobody has built or recorded."""
    assert proof.level.name == "L0"
    assert proof.level.reasons == ()
    assert {one.rung for one in proof.level.findings if one.verdict is not Verdict.PASS} <= {"serving", "evaluation"}


def test_the_claimed_devices_give_the_claimed_level(claimed, proof):
    """By the manifests' devices; the findings are the same to the digit."""
    assert claimed[0].level.name == "L1"
    assert findings_digest(claimed[0].level.findings) == findings_digest(as_served(proof).level.findings)


def test_a_failed_rung_withholds_and_stops_the_ladder(stage, proof, failed):
    """Control of the proof itself: one token."""
    stage.claim, stage.judged_with = TIME, [failed]
    found = stage.judge()
    assert found.verdict is ClaimVerdict.WITHHELD
    assert any("tokens: test_token_ids_are_equal is FAIL" in reason for reason in found.reasons)
    assert any("is NOT PROVEN (not run: tokens failed)" in reason for reason in found.reasons)


def test_a_skipped_rung_withholds(stage, proof, monkeypatch):
    """Control: a rung that one side has not recorded is no proof. The others are those of the whole pair, to save their time."""
    pair = replace(proof.pair, port=Without(proof.pair.port, "merge"))
    of_merge = {name: one for name, one in checks().items() if one[0] == "merge"}
    monkeypatch.setattr("conformance.gate.proof.checks", lambda: of_merge)
    merge = [one for one in findings_of(pair, fixtures(proof.pair)) if one.rung == "merge"]
    assert {one.reason for one in merge} == {"port recorded no merge", ""}  # a check of the reference alone has none
    findings = tuple(one for one in proof.level.findings if one.rung != "merge") + tuple(merge)
    stage.claim, stage.judged_with = TIME, [replace(proof, level=level_of_pair(pair, findings))]
    assert any("merge: " in reason and "port recorded no merge" in reason for reason in stage.judge().reasons)


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.NOT_PROVEN])
def test_an_open_check_withholds(stage, proof, verdict):
    findings = (replace(proof.level.findings[5], verdict=verdict), *proof.level.findings)
    stage.claim, stage.judged_with = TIME, [replace(proof, level=level_of_pair(proof.pair, findings))]
    assert any(f"is {verdict}" in reason for reason in stage.judge().reasons)


def test_a_certificate_of_the_pair_changes_nothing(proof, certificate):
    assert certificate_reasons([proof], certificate) == []


def test_a_certificate_is_of_one_of_the_pairs(proof, claimed, certificate):
    """Two levels may have one recipe: the pair that it is of decides."""
    assert certificate_reasons([*claimed, proof], certificate) == []
    assert any("level is not" in reason for reason in certificate_reasons(claimed, certificate))


def test_a_certificate_that_is_not_what_the_bundles_give_withholds(proof, certificate):
    """Edited, older than the code, of another pair; each with its reason."""
    reasons = {}
    for name, change in (("level", "L2"), ("suite", {"version": "0", "code_sha256": "0" * 64}), ("findings_sha256", "0" * 64)):
        edited = certificate.with_name(f"{name}.json")
        edited.write_text(certificate.read_text())
        edit_json(edited, **{name: change})
        reasons[name] = certificate_reasons([proof], edited)
    assert "level is not what the certificate says" in reasons["level"][0]
    assert "made by other code of the suite: it is older than the code, or edited" in reasons["suite"][0]
    assert "findings_sha256 is not what the certificate says" in reasons["findings_sha256"][0]
    edit_json(certificate, recipe_sha256="0" * 64)
    assert "of a recipe that no pair of bundles is of" in certificate_reasons([proof], certificate)[0]


def test_findings_that_were_edited_and_digested_again_are_not_read(failed, certificate):
    """A certificate made of findings that all passed, beside bundles that fail: the bundles decide."""
    reasons = certificate_reasons([failed], certificate)
    assert any("tokens: test_token_ids_are_equal is FAIL" in reason for reason in reasons)
    assert any(str(certificate) in reason for reason in reasons)


def test_a_damaged_a_swapped_and_a_foreign_pair_are_reasons(files, stage, tmp_path):
    """Control: the pair itself opens. Each withholds the claim with its own words."""
    damaged = copy_linked(files.port, tmp_path / "damaged")
    rewrite(damaged / "plan.json", steps=[])
    other = tmp_path / "other.toml"
    other.write_text(files.recipe.read_text().replace("alpha = 24.0", "alpha = 12.0"))
    ways = {
        "plan.json is not the file that was recorded": replace(files, port=damaged),
        "recorded by stack 'port', given as the reference": Files(files.recipe, files.port, files.reference),
        "recorded from another recipe or other rows": replace(files, recipe=other),
    }
    for words, given in ways.items():
        found = prove(given)
        assert found.pair is None
        assert words in " ".join(found.level.reasons)
        stage.claim = TIME
        assert any(words in reason for reason in claim_reasons(stage.claims()[0], [found]))


def test_what_is_no_bundle_is_bad_input(files, tmp_path):
    with pytest.raises(ContractError, match=r"no manifest\.json"):
        prove(replace(files, port=tmp_path))
