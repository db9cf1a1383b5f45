"""A package's report, computed from the files in it alone."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from conformance.certificate import DATE, Refusal, certify, read_certificate
from conformance.certificate import NAME as CERTIFICATE
from conformance.claims.claims_file import ClaimsFile, read_claims
from conformance.contract.errors import ContractError
from conformance.gate.gate import check_numbers, judge
from conformance.gate.proof import Proof
from conformance.package.layout import CLAIMS, given_in
from conformance.package.stated import with_texts
from conformance.report.facts import Facts, Inputs, facts_of
from conformance.report.measured import Measured, measured_of


@dataclass(frozen=True, slots=True)
class Contents:
    """`refused`: why there is no certificate."""

    inputs: Inputs
    facts: Facts
    refused: tuple[str, ...]


def contents_of(folder: Path) -> Contents:
    """The page is of the last pair: that of the highest level. Places inside the package are named from its folder on."""
    measured = measured_of(given_in(folder))
    proof = _last_proof(folder, measured)
    certificate, refused = _certificate(folder, proof)
    claims = _claims(folder)
    gate = judge(claims, measured.evidence) if claims else None
    pair = proof.pair
    inputs = Inputs(pair.recipe, proof.level.findings, pair.reference, pair.port, certificate, measured, claims, gate)
    return Contents(inputs, with_texts(facts_of(inputs), lambda text: text.replace(f"{folder}/", "")), refused)


def _last_proof(folder: Path, measured: Measured) -> Proof:
    if not measured.evidence.proofs:
        raise ContractError(f"package {folder}: no pair of bundles in it")
    for proof in measured.evidence.proofs:
        if proof.pair is None:
            raise ContractError("; ".join(proof.level.reasons))
    return measured.evidence.proofs[-1]


def _claims(folder: Path) -> ClaimsFile | None:
    if not (folder / CLAIMS).is_file():
        return None
    claims = dataclasses.replace(read_claims(folder / CLAIMS), path=Path(CLAIMS))
    check_numbers(claims)
    return claims


def _certificate(folder: Path, proof: Proof) -> tuple[dict | None, tuple[str, ...]]:
    """(what the findings give, or why nothing); the date is that of the package's own, where it has one."""
    result = certify(proof.level.findings, proof.pair.reference, proof.pair.port, proof.pair.recipe, deselected=False)
    if isinstance(result, Refusal):
        return None, result.reasons
    path = folder / CERTIFICATE
    date = {DATE: read_certificate(path)[DATE]} if path.is_file() else {}
    return result.values | date, ()
