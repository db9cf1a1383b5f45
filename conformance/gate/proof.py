"""What a pair of bundles shows: every finding computed again, in the ladder's order, without pytest; findings files are never read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import certificate
from conformance.certificate import finding_reasons, level_of
from conformance.checks import bundles_of, checks, needs_exchange, promise_of
from conformance.claims.claims_file import Claim
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.errors import ContractError
from conformance.contract.levels import LEVELS
from conformance.contract.plan import Plan
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.grounds import fixtures
from conformance.faults.judging import Given, judged
from conformance.findings import Finding, Verdict
from conformance.gate.results import Level
from conformance.pair import Pair, check_pair, exchange_problem
from conformance.session import unbuilt

NO_BUNDLES = "no bundles were given: findings are computed from them, and never read from a file or a certificate"


@dataclass(frozen=True, slots=True)
class Files:
    """One pair on disk, as it was given."""

    recipe: Path
    reference: Path
    port: Path


@dataclass(frozen=True, slots=True)
class Proof:
    """A pair that was judged, and the level it came to. `pair` None: it could not be opened, and the level says why."""

    level: Level
    pair: Pair | None = None
    plan: Plan | None = None


def prove(files: Files, certificates: Sequence[Path] = ()) -> Proof:
    """`certificates`: those of this recipe must be what the bundles give. Missing files are bad input, damaged ones a reason."""
    recipe = load_recipe(files.recipe)
    for path in (files.reference, files.port):
        if not (path / MANIFEST).is_file():
            raise ContractError(f"bundle {path}: no {MANIFEST}: not a bundle, or its recorder was stopped")
    try:
        pair = Pair(recipe, Bundle(files.reference), Bundle(files.port))
        check_pair(pair)
    except ContractError as error:
        return Proof(Level("none", recipe.digest, (str(error),)))
    given = fixtures(pair)
    return Proof(level_of_pair(pair, findings_of(pair, given), certificates), pair, given["plan"])


def findings_of(pair: Pair, given: Given) -> tuple[Finding, ...]:
    """As a session of `pytest -m parity` has them: the same findings, digest by digest."""
    exchange, found = exchange_problem(pair), []
    for rung, check in checks().values():
        failed = next((one.rung for one in found if one.verdict is Verdict.FAIL), rung)
        reason = f"not run: {failed} failed" if failed != rung else _why_not(pair, rung, check, exchange)
        if reason:
            found.append(Finding(rung, check.__name__, promise_of(check), Verdict.NOT_PROVEN, reason=reason))
        else:
            found.append(judged(rung, check, pair.reference, pair.port, given))
    return (*found, *unbuilt(found, deselected=False))


def _why_not(pair: Pair, rung: str, check: Callable, exchange: str) -> str:
    """Why it cannot be judged on these bundles; empty: it can."""
    for stack in bundles_of(check):
        bundle = getattr(pair, stack)
        if not bundle.has(rung):
            refused = bundle.not_recorded.get(rung)
            return f"{stack} recorded no {rung}" + (f": {refused}" if refused else "")
    return exchange if needs_exchange(check) else ""


def level_of_pair(pair: Pair, findings: tuple[Finding, ...], certificates: Sequence[Path]) -> Level:
    level = level_of(pair.reference, pair.port)
    devices = tuple(bundle.manifest.get("device", "") for bundle in (pair.reference, pair.port))
    wrong = [reason for path in certificates for reason in _certificate_reasons(path, findings, pair)]
    return Level(level.name, pair.recipe.digest, (*finding_reasons(findings, level), *wrong), findings, devices)


def _certificate_reasons(path: Path, findings: Sequence[Finding], pair: Pair) -> Iterator[str]:
    """None where it is of another recipe: `strangers` tells of one that is of no pair."""
    if certificate.read_certificate(path).get("recipe_sha256") != pair.recipe.digest:
        return
    for wrong in certificate.verify(path, findings, pair.reference, pair.port, pair.recipe):
        key = wrong.split(" ", 1)[0]
        why = " (made by other code of the suite: it is older than the code, or edited)" if key == "suite" else ""
        yield f"certificate {path}: {wrong}{why}"


def strangers(proofs: Sequence[Proof], certificates: Sequence[Path]) -> list[str]:
    """Certificates of a recipe that no pair has."""
    known = {proof.level.recipe_sha256 for proof in proofs}
    read = ((path, certificate.read_certificate(path).get("recipe_sha256")) for path in certificates)
    return [f"certificate {path}: of a recipe that no pair of bundles is of" for path, digest in read if digest not in known]


def unlike(proofs: Sequence[Proof]) -> Iterator[str]:
    """What pairs of two levels must have in common: the code of each stack, and its device. Of damaged pairs nothing is known."""
    for stack in ("reference", "port"):
        bundles = [getattr(proof.pair, stack) for proof in proofs if proof.pair]
        for key, words in (("code_sha256", "code"), ("device", "device")):
            values = list(dict.fromkeys(bundle.manifest.get(key, "") for bundle in bundles))
            if len(values) > 1:
                shown = " and ".join(repr(value[:24]) for value in values)
                yield f"the {stack}'s pairs were recorded with different {words}: {shown}: they prove nothing together"


def claim_reasons(claim: Claim, proofs: Sequence[Proof]) -> list[str]:
    """Why these pairs do not prove what the claim needs: its levels, each by a pair of its own, and its rungs."""
    if not proofs:
        return [NO_BUNDLES]
    reasons = [] if claim.levels else ["the claim names no level that it needs: L1 and L2, or L0 for one on CPUs"]
    for name in claim.levels:
        shown = [proof.level for proof in proofs if proof.level.name in enough(name)]
        if not shown:
            got = ", ".join(_described(proof.level) for proof in proofs)
            reasons.append(f"level too low: {name} is needed ({LEVELS[name].shown_on}); the bundles are {got}")
        reasons += [f"{level.name}: {reason}" for level in shown for reason in level.reasons]
    reasons += [f"{proof.level.name}: {reason}" for proof in proofs if not proof.pair for reason in proof.level.reasons]
    return [*reasons, *_rung_reasons(claim, proofs)]


def enough(name: str) -> tuple[str, ...]:
    """L1 asks for the rungs of L0, on the devices; L2 for others."""
    return ("L0", "L1") if name == "L0" else (name,)


def _described(level: Level) -> str:
    return f"{level.name} ({' and '.join(level.devices)})" if level.devices else "of no level"


def _rung_reasons(claim: Claim, proofs: Sequence[Proof]) -> Iterator[str]:
    """Of rungs that it needs beyond those of its levels: each must have passed in a pair of one of them."""
    beyond = [rung for rung in RUNGS if rung in claim.rungs and not any(rung in LEVELS[name].rungs for name in claim.levels)]
    for rung in beyond:
        passed = [_has_passed(proof.level, rung) for proof in proofs]
        if not any(passed):
            found = [one for proof in proofs for one in proof.level.findings if one.rung == rung and one.verdict is not Verdict.PASS]
            why = f": {found[0].check} is {found[0].verdict}" + (f" ({found[0].reason})" if found[0].reason else "") if found else ""
            yield f"{rung}: the claim needs it, and it has not passed{why}"


def _has_passed(level: Level, rung: str) -> bool:
    verdicts = {one.verdict for one in level.findings if one.rung == rung}
    return verdicts == {Verdict.PASS}


def proof_of(proofs: Sequence[Proof], recipe_sha256: str) -> Proof | None:
    """The pair whose recipe the measurements are of; of several the one of the highest level."""
    found = [proof for proof in proofs if proof.pair and proof.level.recipe_sha256 == recipe_sha256]
    return max(found, key=lambda proof: proof.level.name, default=None)
