"""The gate: every claim of a file against the evidence, with every reason why one may not be reported."""

from collections.abc import Iterator

from conformance.claims.claims_file import Claim, ClaimsFile
from conformance.claims.intervals import stated
from conformance.contract.errors import ContractError
from conformance.gate.evidence import Evidence, Given, gather
from conformance.gate.launches import step_ms_of
from conformance.gate.proof import CLAIMED, claim_reasons, enough, proof_of
from conformance.gate.results import ClaimResult, ClaimVerdict, GateResult
from conformance.gate.totals import total_cost
from conformance.gate.training import mfu_reasons
from conformance.gate.tuning import ledger_reasons, measured_reasons, served_reasons
from conformance.gate.values import SERVING, TRAINING, Values, orientation_problem
from conformance.statistics import CONFIDENCE, Ratio, ratio_of_means

NO_EVALUATION = "pass@1: the rung evaluation is not built yet, so nothing is measured"


def run_gate(claims: ClaimsFile, given: Given) -> GateResult:
    check_numbers(claims)
    return judge(claims, gather(given))


def check_numbers(claims: ClaimsFile) -> None:
    """Refuses a stated value or a margin that is no number."""
    for claim in claims.claims:
        where = f"claims {claims.path}: claim {claim.name!r}"
        if stated_value(claim, where) <= 0:
            raise ContractError(f"{where}: stated = {claim.stated!r}; allowed: a ratio above 0")
        margin_of(claim.margin, where)


def judge(claims: ClaimsFile, evidence: Evidence) -> GateResult:
    """Bonferroni: each of m claims is held at 5 % / m, so that the chance that any is wrongly let through stays at 5 %."""
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(claims.claims))
    results = tuple(_judge_claim(claim, evidence, confidence) for claim in claims.claims)
    return GateResult(results, tuple(proof.level for proof in evidence.proofs), evidence.general)


def _judge_claim(claim: Claim, evidence: Evidence, confidence: float) -> ClaimResult:
    values = _values(claim, evidence)
    reasons = [*evidence.general, *claim_reasons(claim, evidence.proofs), *_level_reasons(claim, evidence)]
    reasons += [*filter(None, [orientation_problem(claim)]), *values.reasons, *values.problems]
    reasons += [*_tuning_reasons(claim, evidence), *_margin_reasons(claim, evidence)]
    facts = {"unit": values.unit, "confidence": confidence, "notes": values.notes}
    if reasons:
        return ClaimResult(claim, ClaimVerdict.WITHHELD, None, tuple(dict.fromkeys(reasons)), **facts)
    sides = {"numerator": values.of(claim.numerator), "denominator": values.of(claim.denominator)}
    measured = values.bounds or ratio_of_means(*sides.values(), confidence)
    missed = tuple(_missed(claim, measured))
    verdict = ClaimVerdict.WITHHELD if missed else ClaimVerdict.REPORTABLE
    return ClaimResult(claim, verdict, measured, missed, **sides, **facts)


def _values(claim: Claim, evidence: Evidence) -> Values:
    if claim.metric in TRAINING:
        return evidence.trainings.values(claim, evidence.prices)
    if claim.metric == "total_cost":
        sweeps = evidence.sweeps
        machines = {stack: one.manifest.subject.machine for stack, one in sweeps.by_stack.items()} if sweeps else {}
        return total_cost(claim, evidence.trainings, machines, sweeps.reasons if sweeps else (), evidence.prices)
    if claim.metric in SERVING:
        return _served(claim, evidence)
    return Values(reasons=(NO_EVALUATION,))


def _served(claim: Claim, evidence: Evidence) -> Values:
    if not evidence.sweeps:
        return Values(reasons=("no sweep was given",))
    values = evidence.sweeps.values(claim, evidence.prices)
    return values if values.reasons else values.withheld(*served_reasons(evidence.ledger, evidence.sweeps.best_rates()))


def _level_reasons(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """What was measured on accelerators needs the claimed levels, and what was timed is the recipe of the highest of them."""
    missing = [level for level in CLAIMED if level not in claim.levels]
    if missing and (devices := sorted(evidence.platforms - {"cpu"})):
        asked = " and ".join(claim.levels) or "none"
        yield f"level too low: measured on {' and '.join(devices)}, so L1 and L2 are needed; the claim asks for {asked}"
    if claim.metric in (*TRAINING, "total_cost") and claim.levels:
        highest = max(claim.levels)
        timed = {one.manifest.recipe_sha256 for one in evidence.trainings.by_stack.values()}
        for digest in timed:
            proof = proof_of(evidence.proofs, digest)
            if proof and proof.level.name not in enough(highest):
                yield f"level too low: the recipe that was timed is proved at {proof.level.name}, the claim needs {highest} of it"


def _tuning_reasons(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Of both sides alike: a ledger, and how much of the machine's peak was used."""
    jobs = {"training": claim.metric in (*TRAINING, "total_cost"), "serving": claim.metric in (*SERVING, "total_cost")}
    for job in (job for job, needed in jobs.items() if needed):
        yield from ledger_reasons(job, evidence.ledger)
    trainings = evidence.trainings
    if not jobs["training"] or trainings.reasons or not trainings.by_stack:
        return
    for stack, one in trainings.by_stack.items():
        yield from (f"{stack}: {reason}" for reason in mfu_reasons(one))
    yield from measured_reasons(evidence.ledger, {stack: step_ms_of(one) for stack, one in trainings.by_stack.items()})


def _margin_reasons(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """A margin is fixed before the data, or anything is equal."""
    if claim.kind != "equal":
        return
    where = f"claim {claim.name!r}"
    if not claim.margin:
        yield "equal within which margin? the claim states none"
    elif evidence.lock is None:
        yield f"margin {claim.margin} is not locked: an equality needs a plan that is older than the data (parity claims plan, --plan)"
    elif margin_of(claim.margin, where) != margin_of(evidence.lock.margin, "plan: margin"):
        yield f"margin {claim.margin} is not the locked one, {evidence.lock.margin}: chosen after the data?"


def _missed(claim: Claim, measured: Ratio) -> Iterator[str]:
    """One-sided ends against what is stated: as printed, since a rounded claim is the claim."""
    value = stated_value(claim, "")
    if claim.kind == "at_least" and not measured.bound >= value:
        yield f"not reached: the lower bound {measured.bound:.4g} is below the stated {claim.stated}"
    if claim.kind == "at_most" and not measured.upper <= value:
        yield f"not reached: the upper bound {measured.upper:.4g} is above the stated {claim.stated}"
    if claim.kind == "equal":
        margin = margin_of(claim.margin, "")
        low, high = value / (1 + margin), value * (1 + margin)
        if not low <= measured.bound <= measured.upper <= high:
            yield f"not shown equal: {measured.bound:.4g} to {measured.upper:.4g} does not lie within {low:.4g} to {high:.4g}"


def stated_value(claim: Claim, where: str) -> float:
    return stated(claim.stated, where).middle


def margin_of(text: str, where: str) -> float:
    """"2%" is 0.02; empty: 0."""
    if not text:
        return 0.0
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ContractError(f'{where}: margin {text!r}; allowed: above 0 and below 1, such as "2%"')
    return value

