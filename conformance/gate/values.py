"""What two sides measured for a claim, before any statistics."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.claims.claims_file import Claim
from conformance.statistics import Ratio

STACKS = ("reference", "port")
LOWER_IS_BETTER = ("training_time", "training_cost", "ttft_ms", "tpot_ms", "cost_per_token", "total_cost")
RATES = ("output_tokens_per_s", "cost_per_token")  # what a peak is of
TRAINING, SERVING = ("training_time", "training_cost"), ("ttft_ms", "tpot_ms", "output_tokens_per_s", "cost_per_token")


@dataclass(frozen=True, slots=True)
class Values:
    """`reference`, `port`: one value in `unit` for each launch or server start. `reasons`: why they may not be compared at all.

    `bounds`: the ratio where it does not follow from the values' spread, as of rates that were tried one by one.
    """

    reference: tuple[float, ...] = ()
    port: tuple[float, ...] = ()
    unit: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bounds: Ratio | None = None

    def of(self, stack: str) -> tuple[float, ...]:
        return getattr(self, stack)

    def withheld(self, *reasons: str) -> "Values":
        return replace(self, reasons=(*self.reasons, *reasons))

    @property
    def problems(self) -> Iterator[str]:
        """Numbers that have no ratio."""
        for stack in STACKS:
            wrong = [value for value in self.of(stack) if not 0 < value < float("inf")]
            if wrong:
                yield f"{stack}: {wrong[0]:g} {self.unit} has no ratio: it must be above 0 and finite"


def quantity_problem(claim: Claim) -> str:
    """A quantity that the metric does not have; empty: it has."""
    if claim.quantity == "peak" and claim.metric not in RATES:
        return f"{claim.metric} has no peak; allowed: {', '.join(RATES)}"
    if claim.quantity == "highest_rate" and claim.metric == "cost_per_token":
        return "cost_per_token has no highest rate: a rate has no dollars"
    return ""


def orientation_problem(claim: Claim) -> str:
    """Who is ahead by a ratio of this metric, against who is said to be: of what is better when it is less, the winner divides."""
    stated = float(claim.stated.replace(",", ""))
    numerator_is_larger = {"at_least": stated > 1, "at_most": False, "equal": False}[claim.kind]
    if not numerator_is_larger and not (claim.kind == "at_most" and stated < 1):
        return ""  # says of nobody that he is ahead
    larger, smaller = (claim.numerator, claim.denominator) if numerator_is_larger else (claim.denominator, claim.numerator)
    less_is_better = claim.metric in LOWER_IS_BETTER and claim.quantity != "highest_rate"  # which is in requests/s, whatever limits it
    ahead = smaller if less_is_better else larger
    if ahead == claim.winner:
        return ""
    said = f"{claim.metric}, {claim.numerator} / {claim.denominator} {claim.kind.replace('_', ' ')} {claim.stated}"
    why = "less is better, so the winner is the denominator" if less_is_better else "more is better, so the winner is the numerator"
    return f"inverted ratio: {said} says that the {ahead} is ahead, and the claim that the {claim.winner} is: {why}"
