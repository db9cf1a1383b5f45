"""Every mutation that the operators know of in the port's functions, and a seeded draw of some of them."""

import ast
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from conformance.contract.mutants import Mutant, mutated, source_of
from conformance.mutants.operators import OPERATORS

ROOT = Path(__file__).parents[2]
# The modules that decide numbers. Not those that only record or measure them (recorder, record_*, checkpoint, saver: what they do
# wrong is wrong in the recording, not in the recipe), the command line, processes and meshes (their rung takes minutes on every
# mesh), the faults, the tests.
MODULES = tuple(
    f"tpu_impl.{name}"
    for name in (
        "adapter", "data", "generate", "layout", "lora", "merge", "model", "optimizer", "probe", "session", "step", "taps", "train",
    )
)  # fmt: skip
# Functions of these modules that no recorded number passes through under this recipe, with the reason.
STOCK = "runs only while a correction is off"
CONTROL = "makes a control, not the port's own numbers"
MESH = "runs only on a mesh"
LEFT_OUT = {
    "tpu_impl.optimizer:_stock_clip": STOCK,
    "tpu_impl.optimizer:_stock_adamw": STOCK,
    "tpu_impl.optimizer:_stock_schedule": STOCK,
    "tpu_impl.merge:wrong_merges": CONTROL,
    "tpu_impl.merge:_transposed": CONTROL,
    "tpu_impl.train:Trainer._shard_optimizer": MESH,
}


def draw(count: int, seed: int, modules: tuple[str, ...] = MODULES) -> tuple[Mutant, ...]:
    """`count` mutants: operators take turns, and each takes from the module that has given fewest so far."""
    random_of = random.Random(seed)
    left = {name: [] for name in OPERATORS}
    for module in modules:
        for mutant in mutants_of(module):
            left[mutant.operator].append(mutant)
    for found in left.values():
        random_of.shuffle(found)
    chosen, given = [], Counter()
    while len(chosen) < count and any(left.values()):
        for operator in [name for name in OPERATORS if left[name]][: count - len(chosen)]:
            mutant = min(left[operator], key=lambda mutant: given[mutant.module])
            left[operator].remove(mutant)
            given[mutant.module] += 1
            chosen.append(mutant)
    return tuple(_numbered(mutant, number) for number, mutant in enumerate(chosen))


def _numbered(mutant: Mutant, number: int) -> Mutant:
    values = {name: getattr(mutant, name) for name in Mutant.__slots__}
    return Mutant(**values | {"id": f"mutant-{number:03}"})


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module that can be planted, each of another key."""
    source = source_of(module, ROOT)
    found: dict[tuple, Mutant] = {}
    for function, node in functions(ast.parse(source)):
        if f"{module}:{function}" not in LEFT_OUT:
            for operator, edit, new in _edits(node):
                mutant = _mutant(source, module, function, operator, edit, new)
                if _plantable(source, mutant):
                    found.setdefault(mutant.key, mutant)
    return list(found.values())


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions of a module and methods of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, ast.FunctionDef))


def _edits(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST, str]]:
    """In a function's body: its defaults and decorators are made once, when its module is imported."""
    for statement in function.body:
        for node in _walk(statement):
            for operator, edits in OPERATORS.items():
                yield from ((operator, edit, new) for edit, new in edits(node))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Not into texts (whose parts have no places of their own) and not into what an error says."""
    yield node
    if not isinstance(node, ast.JoinedStr | ast.Raise):
        for inner in ast.iter_child_nodes(node):
            yield from _walk(inner)


def _mutant(source: bytes, module: str, function: str, operator: str, node: ast.AST, new: str) -> Mutant:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    first, last = starts[node.lineno - 1], starts[node.end_lineno]
    after = source[first:start] + new.encode() + source[end:last]
    return Mutant("", module, function, operator, node.lineno, start, end, new, _folded(source[first:last]), _folded(after))


def _folded(text: bytes) -> str:
    return " ".join(text.decode().split())


def _plantable(source: bytes, mutant: Mutant) -> bool:
    """Its code differs, and takes the same variables from around it: a function's code can then be exchanged for it."""
    own = code_of(_compiled(source), mutant.function)
    try:
        code = code_of(compile(mutated(source, mutant), "", "exec"), mutant.function)
    except SyntaxError:
        return False
    return code.co_freevars == own.co_freevars and _shape(code) != _shape(own)


@cache
def _compiled(source: bytes):
    return compile(source, "", "exec")


def code_of(module_code, function: str):
    """The code of a function, or of a class's method, within a module's."""
    found = module_code
    for name in function.split("."):
        found = next(constant for constant in found.co_consts if getattr(constant, "co_name", None) == name)
    return found


def _shape(code) -> tuple:
    inner = tuple(_shape(constant) if hasattr(constant, "co_code") else (type(constant), repr(constant)) for constant in code.co_consts)
    return code.co_code, code.co_names, inner
