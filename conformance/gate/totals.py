"""Training and serving together, in dollars: each launch's whole process, and so many hours of the machine that then serves."""

from conformance.claims.claims_file import Claim
from conformance.gate.costs import SECONDS, Prices
from conformance.gate.training import Trainings
from conformance.gate.values import STACKS, Values


def total_cost(claim: Claim, trainings: Trainings, serving: dict[str, str], serving_reasons: tuple[str, ...], prices: Prices) -> Values:
    """`serving`: machine of each side's sweep. Equal hours are not equal work: what is served in them is another claim."""
    training = trainings.values(claim, prices)
    reasons = [*training.reasons, *serving_reasons]
    if claim.serving_hours <= 0:
        reasons.append(f"serving_hours = {claim.serving_hours:g}: a total cost says how many hours are served")
    reasons += [f"no sweep of the {stack}: the machine that serves is not known" for stack in STACKS if stack not in serving]
    machines = [*serving.values(), *(one.manifest.machine for one in trainings.by_stack.values())]
    reasons += [reason for machine in dict.fromkeys(machines) for reason in prices.reasons(machine)]
    reasons += [f"{stack}: only a part of the recipe's steps was timed" for stack in trainings.partly]
    if reasons:
        return Values(unit="$", reasons=tuple(dict.fromkeys(reasons)))
    totals = (_totals(stack, claim, trainings, serving[stack], prices) for stack in STACKS)
    hours = f"{claim.serving_hours:g} hours of serving on each side, whatever is served in them"
    return Values(*totals, "$", notes=(*trainings.notes, hours, *map(prices.note, dict.fromkeys(machines))))


def _totals(stack: str, claim: Claim, trainings: Trainings, machine: str, prices: Prices) -> tuple[float, ...]:
    served = prices.usd(machine, claim.serving_hours * SECONDS)
    trained_on = trainings.by_stack[stack].manifest.machine
    return tuple(prices.usd(trained_on, seconds) + served for seconds in trainings.paid_seconds(stack))
