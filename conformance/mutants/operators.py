"""The mutation operators: what each makes of a node of a function's syntax tree."""

import ast
from collections.abc import Callable, Iterator

Edit = tuple[ast.AST, str]  # a node, and the text that takes its place

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "&",
}  # fmt: skip
WITH_AXIS = {"swapaxes", "sum", "max", "min", "mean", "stack", "concatenate", "take_along_axis", "expand_dims", "split", "cumsum"}


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constant(node: ast.AST) -> Iterator[Edit]:
    """A number one more, one less, doubled, negated."""
    if _is_number(node):
        value = node.value
        yield from ((node, f"({other!r})") for other in (value + 1, value - 1, value * 2, -value) if other != value)


def comparison(node: ast.AST) -> Iterator[Edit]:
    """A comparison's bound moved, or its sense turned."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, f"({_text(node.left)} {COMPARISONS[type(node.ops[0])]} {_text(node.comparators[0])})"


def arithmetic(node: ast.AST) -> Iterator[Edit]:
    """Another operator between two values; a sign left out."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield node, f"(({_text(node.left)}) {ARITHMETIC[type(node.op)]} ({_text(node.right)}))"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not _is_number(node.operand):
        yield node, f"({_text(node.operand)})"


def axis(node: ast.AST) -> Iterator[Edit]:
    """The neighbouring axis."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""  # not the built-in max and min
        given = [word.value for word in node.keywords if word.arg in ("axis", "axes")]
        given += [argument for argument in node.args if name in WITH_AXIS and _axis_number(argument) is not None]
        for argument in given:
            if (number := _axis_number(argument)) is not None:
                yield argument, f"({number - 1 if number > 0 else number + 1 if number < -1 else -2 if number == -1 else 1})"


def _axis_number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_number(node.operand):
        return -node.operand.value
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def flag(node: ast.AST) -> Iterator[Edit]:
    """True for False and the other way; `not` left out; `and` for `or`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, repr(not node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({_text(node.operand)})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, "(" + word.join(f"({_text(value)})" for value in node.values) + ")"


def condition(node: ast.AST) -> Iterator[Edit]:
    """A condition turned: of a statement, an expression, or a comprehension's filter."""
    tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else []
    tests += node.ifs if isinstance(node, ast.comprehension) else []
    yield from ((test, f"(not ({_text(test)}))") for test in tests)


def dropped(node: ast.AST) -> Iterator[Edit]:
    """A statement left out: a call, an update, an assignment to a part of something, a whole `if`."""
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    parts = isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    if call or parts or isinstance(node, ast.AugAssign | ast.If):
        yield node, "pass"


def swapped(node: ast.AST) -> Iterator[Edit]:
    """Two neighbouring arguments of a call exchanged."""
    if isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
        texts = [_text(argument) for argument in node.args]
        for at in range(len(texts) - 1):
            if texts[at] != texts[at + 1]:
                order = [*texts[:at], texts[at + 1], texts[at], *texts[at + 2 :]]
                words = [_text(word) for word in node.keywords]
                yield node, f"{_text(node.func)}({', '.join(order + words)})"


def bound(node: ast.AST) -> Iterator[Edit]:
    """A bound of a slice one up or one down."""
    if isinstance(node, ast.Slice):
        for end in (node.lower, node.upper):
            if end is not None:
                yield from ((end, f"({_text(end)}) {sign} 1") for sign in "+-")


OPERATORS: dict[str, Callable[[ast.AST], Iterator[Edit]]] = {
    "constant": constant,
    "comparison": comparison,
    "arithmetic": arithmetic,
    "axis": axis,
    "flag": flag,
    "condition": condition,
    "dropped": dropped,
    "swapped": swapped,
    "bound": bound,
}
