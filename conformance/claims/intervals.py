"""Stated numbers as intervals: what a printed number may have been before it was rounded, and arithmetic on that."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from conformance.contract.errors import ContractError


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def meets(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: "Interval") -> "Interval":
        return self + -other

    def __mul__(self, other: "Interval") -> "Interval":
        return _hull(a * b for a in (self.low, self.high) for b in (other.low, other.high))

    def __truediv__(self, other: "Interval") -> "Interval":
        if other.low <= 0 <= other.high:
            raise ContractError(f"division by a number between {other.low:g} and {other.high:g}, which may be 0")
        return _hull(a / b for a in (self.low, self.high) for b in (other.low, other.high))


def _hull(ends) -> Interval:
    values = tuple(ends)
    return Interval(min(values), max(values))


def stated(text: str, where: str) -> Interval:
    """"1.61" may have been anything from 1.605 to 1.615: half a unit of the last digit that is printed, either way."""
    try:
        value = Decimal(text.replace(",", ""))
    except InvalidOperation:
        value = None
    if value is None or not value.is_finite():
        raise ContractError(f'{where}: {text!r} is not a number; write it as it is printed, such as "1.61"')
    half = Decimal((0, (5,), value.as_tuple().exponent - 1))
    return Interval(float(value - half), float(value + half))


def exact(value: float) -> Interval:
    return Interval(value, value)


OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def evaluate(expression: str, numbers: Mapping[str, Interval], where: str) -> Interval:
    """Names, plain numbers (exact), + - * / and parentheses. A name that stands twice is taken as two: never too narrow."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise ContractError(f"{where}: {expression!r} is not an expression: {error.msg}") from error
    return _evaluate(tree, numbers, f"{where}: {expression!r}")


def _evaluate(node: ast.expr, numbers: Mapping[str, Interval], where: str) -> Interval:
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(left, numbers, where), _evaluate(right, numbers, where))
        case ast.UnaryOp(ast.USub(), operand):
            return -_evaluate(operand, numbers, where)
        case ast.Name(name):
            if name not in numbers:
                raise ContractError(f"{where}: no number is called {name!r}")
            return numbers[name]
        case ast.Constant(value) if isinstance(value, int | float) and not isinstance(value, bool):
            return exact(float(value))
    raise ContractError(f"{where}: only names, numbers, + - * / and parentheses are allowed, not {ast.unparse(node)!r}")

