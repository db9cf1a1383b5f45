"""Stated numbers against each other and against the hardware: no measurement is needed for that."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from conformance.claims.claims_file import ClaimsFile, Sum
from conformance.claims.intervals import Interval, evaluate

NAME = re.compile(r"\b[A-Za-z_]\w*")


class Verdict(StrEnum):
    CONSISTENT = "CONSISTENT"
    CONTRADICTORY = "CONTRADICTORY"
    IMPOSSIBLE = "IMPOSSIBLE"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`arithmetic`: the sum with its numbers put in."""

    sum: Sum
    left: Interval
    right: Interval
    verdict: Verdict
    arithmetic: str


def check(claims: ClaimsFile) -> Iterator[Outcome]:
    numbers = claims.intervals()
    for one in claims.sums:
        where = f"claims {claims.path}: {one.about!r}"
        left, right = (evaluate(side, numbers, where) for side in (one.left, one.right))
        yield Outcome(one, left, right, _verdict(one, left, right), _arithmetic(claims, one, left, right))


def _verdict(one: Sum, left: Interval, right: Interval) -> Verdict:
    holds = {
        "equal": left.meets(right), "be at least": left.high >= right.low, "be at most": left.low <= right.high,
    }[one.must]  # fmt: skip
    if holds:
        return Verdict.CONSISTENT
    return Verdict.IMPOSSIBLE if one.physical else Verdict.CONTRADICTORY


def _arithmetic(claims: ClaimsFile, one: Sum, left: Interval, right: Interval) -> str:
    sides = (f"{_filled(claims, side)}{_result(side, value)}" for side, value in ((one.left, left), (one.right, right)))
    return f" must {one.must} ".join(sides)


def _filled(claims: ClaimsFile, expression: str) -> str:
    """The expression with each name's number behind it, as it is printed."""

    def filled(match: re.Match) -> str:
        number = claims.numbers[match.group()]
        return f"{number.name} [{' '.join(filter(None, (number.value, number.unit)))}]"

    return NAME.sub(filled, expression)


def _result(expression: str, value: Interval) -> str:
    if expression.isidentifier():
        return ""
    return f" = {value.low:.4g}" if value.low == value.high else f" = {value.low:.4g} to {value.high:.4g}"
