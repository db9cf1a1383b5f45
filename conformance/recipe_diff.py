"""Two recipes side by side, with what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan, make_plan
from conformance.contract.recipe import Recipe
from conformance.contract.topology import read_topology

NOT_KNOWN = "not known here"


@dataclass(frozen=True, slots=True)
class Line:
    """A value of two recipes, as text."""

    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        return self.a != self.b


def diff(a: Recipe, b: Recipe) -> tuple[Line, ...]:
    """Consequences first, then every value."""
    sides = [consequences(recipe, plan_or_problem(recipe)[0]) | flat(recipe.to_dict()) for recipe in (a, b)]
    return tuple(Line(name, sides[0][name], sides[1][name]) for name in sides[0])


def plan_or_problem(recipe: Recipe) -> tuple[Plan | None, str]:
    """The plan, or why it can't be made here: a recipe may be read where its rows and checkpoint are not."""
    try:
        return make_plan(recipe), ""
    except ContractError as error:
        return None, str(error)


def consequences(recipe: Recipe, plan: Plan | None) -> dict[str, str]:
    """Effective batch, scale, steps, tokens per update, trainable parameters."""
    return {
        "effective batch": f"{recipe.batch.effective} rows",
        "scale of B·A": f"{recipe.scale:g}",
        "optimizer steps": f"{plan.total_steps:,}" if plan else NOT_KNOWN,
        "tokens per update": _tokens_per_update(plan) if plan else NOT_KNOWN,
        "trainable parameters": _trainable(recipe),
    }


def flat(values: Mapping, prefix: str = "") -> dict[str, str]:
    """Nested tables as `table.key` -> text; None is "none", as in a recipe file."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: _text(value)}
    return found


def _tokens_per_update(plan: Plan) -> str:
    """Mean over all steps, the partial last one included."""
    tokens = sum(len(plan.by_row[row].ids) for step in plan.steps for row in step.rows)
    return f"{tokens / plan.total_steps:,.1f} (mean)"


def _trainable(recipe: Recipe) -> str:
    try:
        weights = read_topology(recipe.checkpoint_dir).adapted(recipe.adapter.targets)
    except ContractError:
        return NOT_KNOWN
    return f"{recipe.adapter.rank * sum(weight.in_features + weight.out_features for weight in weights):,}"


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
