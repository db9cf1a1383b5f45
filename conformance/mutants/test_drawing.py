"""The draw: the same for a seed, of every operator, spread over the modules, each mutant plantable."""

import ast
from collections import Counter

import pytest

from conformance.contract.mutants import mutated, source_of
from conformance.mutants.drawing import LEFT_OUT, MODULES, ROOT, draw, functions, mutants_of
from conformance.mutants.equivalents import are_equivalent, read_equivalents
from conformance.mutants.operators import OPERATORS

DRAWN = draw(60, seed=1, modules=("tpu_impl.data", "tpu_impl.optimizer"))


def made(operator: str, source: str) -> set[str]:
    """What an operator makes of a piece of code."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for edit, new in OPERATORS[operator](node):
            lines = source.splitlines()
            assert edit.lineno == edit.end_lineno
            line = lines[edit.lineno - 1]
            lines[edit.lineno - 1] = line[: edit.col_offset] + new + line[edit.end_col_offset :]
            found.add("\n".join(lines))
    return found


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        ("constant", "x = 3", {"x = (4)", "x = (2)", "x = (6)", "x = (-3)"}),
        ("constant", "x = 0", {"x = (1)", "x = (-1)"}),
        ("comparison", "a < b", {"(a <= b)"}),
        ("arithmetic", "a * (b + c)", {"((a) / (b + c))", "a * (((b) - (c)))"}),
        ("arithmetic", "-a", {"(a)"}),
        ("axis", "x.sum(axis=0)", {"x.sum(axis=(1))"}),
        ("axis", "np.stack(x, -1)", {"np.stack(x, (-2))"}),
        ("axis", "max(1, n)", set()),
        ("flag", "f(on=True)", {"f(on=False)"}),
        ("flag", "a and b", {"((a) or (b))"}),
        ("condition", "x = a if b else c", {"x = a if (not (b)) else c"}),
        ("dropped", "self.x = 3", {"pass"}),
        ("dropped", "x = 3", set()),
        ("swapped", "f(a, b, c=d)", {"f(b, a, c=d)"}),
        ("swapped", "f(*a, b)", set()),
        ("bound", "x[1:]", {"x[(1) + 1:]", "x[(1) - 1:]"}),
    ],
)
def test_what_an_operator_makes(operator, source, expected):
    assert made(operator, source) == expected


def test_a_draw_is_the_same_for_a_seed():
    assert draw(20, 5, ("tpu_impl.merge",)) == draw(20, 5, ("tpu_impl.merge",))
    assert draw(5, 5, ("tpu_impl.merge",)) != draw(5, 6, ("tpu_impl.merge",))
    assert draw(5, 5, ("tpu_impl.merge",)) == draw(20, 5, ("tpu_impl.merge",))[:5]  # a smaller draw is the beginning of a larger one


def test_every_operator_draws():
    assert {mutant.operator for mutant in DRAWN} == set(OPERATORS)


def test_modules_give_alike():
    """Not quite: some operators find nothing in some modules."""
    counts = Counter(mutant.module for mutant in DRAWN)
    assert min(counts.values()) >= 0.8 * max(counts.values())


def test_no_mutant_is_drawn_twice():
    assert len({mutant.key for mutant in DRAWN}) == len(DRAWN) == len({mutant.id for mutant in DRAWN})


def test_what_is_left_out_is_there_to_be_left_out():
    """A function that was renamed is not left out by its old name."""
    for name in LEFT_OUT:
        module, _, function = name.partition(":")
        assert module in MODULES
        assert function in dict(functions(ast.parse(source_of(module, ROOT))))
        assert all(mutant.function != function for mutant in mutants_of(module))


def test_a_mutant_says_what_it_is():
    mutant = next(mutant for mutant in DRAWN if mutant.operator == "comparison")
    assert mutant.after in " ".join(mutated(source_of(mutant.module, ROOT), mutant).decode().split())
    assert mutant.before in " ".join(source_of(mutant.module, ROOT).decode().split())


def test_every_equivalent_is_a_mutant():
    """One whose lines have changed is to be looked at again."""
    possible = {mutant.key for module in MODULES for mutant in mutants_of(module)}
    assert [equivalent for equivalent in read_equivalents() if equivalent.key not in possible] == []


def test_equivalents_are_known_by_what_they_are():
    assert are_equivalent(DRAWN[:2], ()) == set()
    mutant = DRAWN[0]
    listed = [type("Listed", (), {"key": mutant.key})]
    assert are_equivalent(DRAWN[:2], listed) == {mutant.id}
