"""A certificate exists only for a whole run in which every required check passed, and stands for exactly that run."""

import dataclasses
import json

import pytest

from conformance.certificate import NAME, Certificate, Refusal, certify, read_certificate, verify, write_certificate
from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import RungWriter
from conformance.contract.errors import ContractError
from conformance.contract.levels import L0, L1, L2, device_kind, level_for
from conformance.findings import Verdict
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings, write_bundle


@pytest.fixture(scope="module")
def bundles(recipe, plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    return tuple(write_bundle(folder / stack, stack, recipe, plan) for stack in ("reference", "port"))


@pytest.fixture
def certified(recipe, bundles, tmp_path):
    """Path of a good certificate."""
    return write_certificate(tmp_path, certify(passing_findings(), *bundles, recipe, deselected=False))


def reasons(findings, bundles, recipe, *, deselected=False) -> str:
    """Why it is refused."""
    result = certify(findings, *bundles, recipe, deselected=deselected)
    assert isinstance(result, Refusal)
    return " | ".join(result.reasons)


def test_a_whole_passing_run_is_certified(recipe, bundles):
    """L0 on CPU, with the digest of everything that it rests on."""
    result = certify(passing_findings(), *bundles, recipe, deselected=False)
    assert isinstance(result, Certificate)
    assert result.level == "L0"
    assert result.values["recipe_sha256"] == recipe.digest
    assert result.values["rungs"] == dict.fromkeys(L0.rungs, 2)
    assert all(len(result.values[key]) == 64 for key in ("plan_sha256", "rows_sha256", "findings_sha256", "tolerances_sha256"))


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.PASS])
def test_one_check_that_did_not_pass_is_enough_to_refuse(recipe, bundles, verdict):
    """Control: FAIL, INCONCLUSIVE and NOT PROVEN all refuse, whatever the others say."""
    findings = passing_findings()
    findings[7] = dataclasses.replace(findings[7], verdict=verdict)
    assert f"is {verdict}" in reasons(findings, bundles, recipe)


@pytest.mark.parametrize("rung", L0.rungs)
def test_a_rung_without_checks_refuses(recipe, bundles, rung):
    """Control: nothing measured is not passed."""
    findings = [finding for finding in passing_findings() if finding.rung != rung]
    assert reasons(findings, bundles, recipe) == f"{rung}: no check ran; L0 requires it"


def test_a_run_with_deselected_checks_refuses(recipe, bundles):
    assert "deselected" in reasons(passing_findings(), bundles, recipe, deselected=True)


def test_a_missing_or_foreign_bundle_refuses(recipe, bundles):
    """No bundle, swapped bundles, bundles of another recipe."""
    other = dataclasses.replace(recipe, adapter=dataclasses.replace(recipe.adapter, alpha=12.0))
    assert "missing" in reasons(passing_findings(), (bundles[0], None), recipe)
    assert "recorded by stack" in reasons(passing_findings(), bundles[::-1], recipe)
    assert "another recipe" in reasons(passing_findings(), bundles, other)


def test_rungs_beyond_the_level_do_not_refuse(recipe, bundles):
    """L0 doesn't ask for serving; its absence is no refusal."""
    findings = [*passing_findings(), open_finding("serving", "no server here")]
    assert isinstance(certify(findings, *bundles, recipe, deselected=False), Certificate)


def test_a_refusal_removes_an_older_certificate(recipe, bundles, certified):
    """A certificate must not outlive the run that it is about."""
    assert certified.is_file()
    refused = certify([*passing_findings(), failing_finding()], *bundles, recipe, deselected=False)
    assert write_certificate(certified.parent, refused) is None
    assert list(certified.parent.iterdir()) == []


def test_a_certificate_holds_for_its_own_run(recipe, bundles, certified):
    """Made again from findings and bundles, it is the same but for its date."""
    assert verify(certified, passing_findings(), *bundles, recipe) == ()
    assert verify(certified, passing_findings()[::-1], *bundles, recipe) == ()


def test_a_certificate_does_not_hold_for_another_run(recipe, bundles, certified):
    """Control: another measured value, a failure, or an edited certificate are seen."""
    findings = passing_findings()
    findings[1] = dataclasses.replace(findings[1], measured=2.5e-6)
    assert verify(certified, findings, *bundles, recipe) == ("findings_sha256 is not what the certificate says",)
    assert verify(certified, [*passing_findings(), failing_finding()], *bundles, recipe)
    values = read_certificate(certified)
    certified.write_text(json.dumps(values | {"level": "L2"}))
    assert verify(certified, passing_findings(), *bundles, recipe) == ("level is not what the certificate says",)


def test_answers_of_another_server_are_seen(recipe, plan, tmp_path):
    """Control: the rung serving recorded anew joins a bundle whose own manifest stays as it was."""
    pair = tuple(write_bundle(tmp_path / stack, stack, recipe, plan) for stack in ("reference", "port"))
    certified = write_certificate(tmp_path, certify(passing_findings(), *pair, recipe, deselected=False))
    assert verify(certified, passing_findings(), *pair, recipe) == ()
    with RungWriter(pair[1], "serving", plan) as writer:
        writer.not_recorded("no vLLM here")
    assert verify(certified, passing_findings(), pair[0], Bundle(pair[1].path), recipe) == ("port is not what the certificate says",)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 0}'])
def test_what_is_no_certificate_is_refused(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ContractError, match="certificate"):
        read_certificate(tmp_path / NAME)


@pytest.mark.parametrize(
    ("reference", "port", "large", "level"),
    [
        ("cpu (x86_64)", "cpu (x86_64)", False, L0),
        ("NVIDIA H100 80GB HBM3", "TPU v5p", False, L1),
        ("NVIDIA H100 80GB HBM3", "TPU v5p", True, L2),
        ("NVIDIA H100 80GB HBM3", "cpu (x86_64)", True, L0),
        ("cpu (x86_64)", "TPU v5p", False, L0),
        ("NVIDIA H200", "NVIDIA H200", False, L0),
    ],
)
def test_a_level_is_no_higher_than_both_devices(reference, port, large, level):
    assert level_for(reference, port, large=large) == level


def test_an_unknown_device_is_no_accelerator():
    """Control: only what names itself a GPU or a TPU counts as one."""
    assert [device_kind(name) for name in ("", "cpu", "gaudi", "Radeon (rocm)", "TPU v6 lite")] == ["cpu", "cpu", "cpu", "gpu", "tpu"]
