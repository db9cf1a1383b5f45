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
from conformance.gate.values import SERVING, STACKS
from conformance.pair import Pair, check_pair, exchange_problem
from conformance.session import unbuilt

CLAIMED = ("L1", "L2")  # levels that a claim about accelerators needs, whatever it asks for
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


def prove(files: Files) -> Proof:
    """Missing files are bad input, damaged ones a reason."""
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
    return Proof(level_of_pair(pair, findings_of(pair, given)), pair, given["plan"])


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


def level_of_pair(pair: Pair, findings: tuple[Finding, ...]) -> Level:
    level = level_of(pair.reference, pair.port)
    devices = tuple(bundle.manifest.get("device", "") for bundle in (pair.reference, pair.port))
    return Level(level.name, pair.recipe.digest, tuple(finding_reasons(findings, level)), findings, devices)


def certificate_reasons(proofs: Sequence[Proof], path: Path) -> list[str]:
    """Why it is not what any pair gives; of several pairs of its recipe the reasons of that which it fits best."""
    recipe_sha256 = certificate.read_certificate(path).get("recipe_sha256")
    known = [proof for proof in proofs if proof.pair and proof.level.recipe_sha256 == recipe_sha256]
    if not known:
        return [f"certificate {path}: of a recipe that no pair of bundles is of"]
    tried = [certificate.verify(path, one.level.findings, one.pair.reference, one.pair.port, one.pair.recipe) for one in known]
    return [f"certificate {path}: {_explained(wrong)}" for wrong in min(tried, key=len)]


def _explained(wrong: str) -> str:
    return wrong + (" (made by other code of the suite: it is older than the code, or edited)" if wrong.startswith("suite ") else "")


def unlike(proofs: Sequence[Proof]) -> Iterator[str]:
    """What pairs of the claimed levels must have in common: the code of each stack, and its device."""
    for stack in STACKS:
        bundles = [getattr(proof.pair, stack) for proof in proofs if proof.pair and proof.level.name in CLAIMED]
        for key, words in (("code_sha256", "code"), ("device", "device")):
            values = list(dict.fromkeys(bundle.manifest.get(key, "") for bundle in bundles))
            if len(values) > 1:
                shown = " and ".join(repr(value[:24]) for value in values)
                yield f"the {stack}'s pairs were recorded with different {words}: {shown}: they prove nothing together"


def claim_reasons(claim: Claim, proofs: Sequence[Proof]) -> list[str]:
    """Why these pairs do not prove what the claim needs: its levels, each by a pair of its own, and its rungs.

    Every pair that is given must hold. A claim about a server needs the rung *serving*, which no level of a tiny model does.
    """
    if not proofs:
        return [NO_BUNDLES]
    reasons = [] if claim.levels else ["the claim names no level that it needs: L1 and L2, or L0 for one on CPUs"]
    for name in claim.levels:
        if not any(proof.level.name in enough(name) for proof in proofs):
            got = ", ".join(_described(proof.level) for proof in proofs)
            reasons.append(f"level too low: {name} is needed ({LEVELS[name].shown_on}); the bundles are {got}")
    reasons += [f"{proof.level.name}: {reason}" for proof in proofs for reason in proof.level.reasons]
    return [*reasons, *_rung_reasons(claim, proofs)]


def enough(name: str) -> tuple[str, ...]:
    """L1 asks for the rungs of L0, on the devices; L2 for others."""
    return ("L0", "L1") if name == "L0" else (name,)


def _described(level: Level) -> str:
    return f"{level.name} ({' and '.join(level.devices)})" if level.devices else "of no level"


def _rung_reasons(claim: Claim, proofs: Sequence[Proof]) -> Iterator[str]:
    """Of rungs that it needs beyond those of its levels: each must have passed in a pair of one of them."""
    needed = {*claim.rungs, *(("serving",) if claim.metric in SERVING else ())}
    beyond = [rung for rung in RUNGS if rung in needed and not any(rung in LEVELS[name].rungs for name in claim.levels)]
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
