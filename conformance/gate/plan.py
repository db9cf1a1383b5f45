"""`parity claims plan`: the cheapest launches x steps and starts x requests that have the power, and the lock of them."""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from conformance.bench.bundle_files import MANIFEST
from conformance.claims.claims_file import read_claims
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.gate import lock
from conformance.gate.costs import Prices, open_prices
from conformance.gate.evidence import open_measurements
from conformance.gate.gate import margin_of
from conformance.gate.launches import LEAST, MOST_WARM_UP
from conformance.gate.pilot import Spread, serving_spread, training_spread
from conformance.statistics import CONFIDENCE, POWER, detectable_ratio, power_of_ratio
from conformance.summary import ALL_PASS, CHECK_FAILED

MOST_RUNS = 64
STARTS = 3  # of a server, at the least (DESIGN.md, Statistics)
SIDES = 2
RISE = 1.25  # from one number of steps or requests that is tried to the next


@dataclass(frozen=True, slots=True)
class Choice:
    """`runs` of `count` steps or requests each, on each side; dollars for both."""

    runs: int
    count: int
    power: float
    usd: float


@dataclass(frozen=True, slots=True)
class Question:
    """`equal`: both ends of an interval are asked for, which is a power of its own."""

    margin: float
    confidence: float
    equal: bool

    def power(self, spread: Spread, runs: int, count: int) -> float:
        one_sided = power_of_ratio(1 + self.margin, 1.0, spread.sd(count), runs, self.confidence)
        return max(0.0, 2 * one_sided - 1) if self.equal else one_sided


def run(options: argparse.Namespace) -> int:
    claims = read_claims(options.claims).claims if options.claims else ()
    m, margin = max(1, len(claims)), margin_of(options.margin, "--margin")
    if not margin or not 0 < options.budget < math.inf:
        raise ContractError(f"--margin {options.margin!r}, --budget {options.budget:g}: both must be above 0")
    question = Question(margin, 1 - (1 - CONFIDENCE) / m, any(claim.kind == "equal" for claim in claims))
    spreads, prices = _spreads(options.pilot), open_prices(options.prices)
    found = {job: _search(of_job, question, prices, LEAST if job == "training" else STARTS) for job, of_job in spreads.items()}
    for line in _lines(spreads, found, question, options):
        print(line)
    chosen = {job: _cheapest(choices) for job, choices in found.items()}
    if not all(chosen.values()) or sum(one.usd for one in chosen.values()) > options.budget:
        return CHECK_FAILED
    if options.out:
        print(f"locked: {lock.write_lock(options.out, _locked(options, chosen, m, spreads))}")
    return ALL_PASS


def _spreads(pilots: Sequence) -> dict[str, list[Spread]]:
    """By job, each side that the pilot has."""
    trained, swept, damaged = open_measurements(pilots)
    if damaged:
        raise ContractError(damaged[0])
    found = {
        "training": [training_spread(one, make_plan(one.recipe).total_steps) for one in trained],
        "serving": [serving_spread(one) for one in swept],
    }
    return {job: spreads for job, spreads in found.items() if spreads}


def _search(spreads: Sequence[Spread], question: Question, prices: Prices, least: int) -> list[Choice]:
    """Everything that is tried. Of two sides the one that scatters more counts for both; of one, it stands for the other too."""
    for machine in {spread.machine for spread in spreads}:
        if problems := list(prices.reasons(machine)):
            raise ContractError(f"pilot: {problems[0]}: without a price there is no budget")
    most, warm_up = min(spread.most for spread in spreads), max(spread.warm_up for spread in spreads)
    return [_choice(spreads, question, prices, runs, count) for count in _counts(warm_up, most) for runs in range(least, MOST_RUNS + 1)]


def _choice(spreads: Sequence[Spread], question: Question, prices: Prices, runs: int, count: int) -> Choice:
    usd = [prices.usd(spread.machine, spread.seconds(runs, count)) for spread in spreads]
    power = min(question.power(spread, runs, count) for spread in spreads)
    return Choice(runs, count, power, sum(usd) * SIDES / len(usd))


def _counts(warm_up: int, most: int) -> Iterator[int]:
    """Rising, up to all that there are."""
    count = max(warm_up + 5.0, warm_up / MOST_WARM_UP)  # the gate takes no longer warm-up
    while count < most:
        yield round(count)
        count *= RISE
    yield most


def _cheapest(choices: Sequence[Choice]) -> Choice | None:
    return min((one for one in choices if one.power >= POWER), key=lambda one: (one.usd, one.runs), default=None)


def _lines(spreads, found, question: Question, options: argparse.Namespace) -> Iterator[str]:
    total = 0.0
    for job, choices in found.items():
        of_job, units = spreads[job], ("launches", "steps") if job == "training" else ("starts", "requests a cell")
        sd = max(spread.between for spread in of_job) ** 0.5, max(spread.within for spread in of_job) ** 0.5
        yield f"{job}: between {units[0]} {sd[0]:.2%}, within {sd[1]:.2%} (sd of one; taken with caution from the pilot)"
        best = _cheapest(choices)
        if best:
            total += best.usd
            counts = f"{best.runs} {units[0]} x {best.count} {units[1]}"
            yield f"  {counts} a side: power {best.power:.0%} for {options.margin}, ${best.usd:.2f}"
        else:
            yield f"  no plan of at most {MOST_RUNS} {units[0]} has a power of {POWER:.0%} for {options.margin}"
        if best is None or total > options.budget:
            yield from _what_the_budget_buys(choices, of_job, question, options.budget, units)
    yield f"together ${total:.2f} of ${options.budget:.2f}, both sides; confidence {question.confidence:.2%} of each claim"


def _what_the_budget_buys(choices, spreads, question: Question, budget: float, units: tuple[str, str]) -> Iterator[str]:
    paid = [one for one in choices if one.usd <= budget]
    if not paid:
        yield f"  ${budget:.2f} buys nothing: the least, {choices[0].runs} {units[0]}, is ${min(one.usd for one in choices):.2f}"
        return
    best = max(paid, key=lambda one: (one.power, -one.usd))
    sd = max(spread.sd(best.count) for spread in spreads)
    seen = detectable_ratio(sd, best.runs, POWER, question.confidence) - 1
    counts = f"{best.runs} {units[0]} x {best.count} {units[1]}"
    yield f"  ${budget:.2f} buys {counts}: power {best.power:.0%}; a power of {POWER:.0%} only for {seen:.2%}"


def _locked(options: argparse.Namespace, chosen: dict[str, Choice], claims: int, spreads: dict[str, list[Spread]]) -> lock.Lock:
    training, serving = chosen.get("training"), chosen.get("serving")
    return lock.lock(lock.Lock(
        version=lock.VERSION, created=datetime.now(UTC).isoformat(timespec="seconds"), margin=options.margin,
        power=min(one.power for one in chosen.values()), claims=claims,
        pilot=tuple(sha256_file(path / MANIFEST) for path in options.pilot),
        training=training and lock.Training(training.runs, training.count),
        serving=serving and lock.Serving(serving.runs, serving.count),
        budget_usd=options.budget, expected_usd=round(sum(one.usd for one in chosen.values()), 2),
    ))  # fmt: skip
