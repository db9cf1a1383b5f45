"""Tables of the report: both sides' hyperparameters and what follows from them, environment, digests."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.digest import sha256_file
from conformance.contract.errors import NotRecorded
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.serving.manifest import DECISIVE, NAMED
from conformance.recipe_diff import consequences, flat

ABSENT = "not recorded"
# Shown in tables of their own, or too long to show.
DIGESTS = ("recipe_sha256", "plan_sha256", "rows_sha256", "checkpoint_sha256", "code_sha256")
PATHS = ("model.checkpoint", "data.rows", "generation.rows")  # of each side's own machine
HIDDEN = ("files", "seeds", "stack", *DIGESTS)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `differ`: the sides have other values where they should have the same."""

    name: str
    reference: str
    port: str
    differ: bool = False


def recipe_rows(recipe: Recipe, reference: Bundle | None, port: Bundle | None, plan: Plan | None) -> tuple[Row, ...]:
    """What follows from the recipe first, then every value that each side recorded."""
    sides = [_recorded_recipe(bundle) or flat(recipe.to_dict()) for bundle in (reference, port)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    values = [_row(name, *(side.get(name, ABSENT) for side in sides), may_differ=name in PATHS) for name in names]
    return (*_planned(recipe, plan), *_measured(reference, port), *values)


def environment_rows(reference: Bundle | None, port: Bundle | None) -> tuple[Row, ...]:
    """Versions, devices, precision: sides may well differ here, so nothing is marked; then the servers."""
    sides = [flat(_visible(bundle)) for bundle in (reference, port)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    rows = [Row(name, *(side.get(name, "–") for side in sides)) for name in sorted(names, key=_versions_last)]
    return (*rows, *_server_rows(reference, port))


def _server_rows(reference: Bundle | None, port: Bundle | None) -> list[Row]:
    """What the two servers were set to: settings that decide numbers or batches are marked where they differ."""
    sides = [_server(bundle) for bundle in (reference, port)]
    names = [name for name in (*NAMED, *DECISIVE) if any(name in side for side in sides)]
    values = [(name, *(side.get(name, ABSENT) for side in sides)) for name in names]
    return [_row(f"serving.{name}", *pair, may_differ=name not in DECISIVE) for name, *pair in values]


def _server(bundle: Bundle | None) -> dict[str, str]:
    if bundle is None or not bundle.has("serving"):
        return {}
    return {line["setting"]: line["value"] for line in bundle.lines("serving", "server") if line["serves"] == "merged"}


def digest_rows(reference: Bundle | None, port: Bundle | None) -> tuple[Row, ...]:
    """The two code digests and manifests differ by nature, all others must be equal."""
    sides = [_digests(bundle) for bundle in (reference, port)]
    names = dict.fromkeys([*sides[0], *sides[1]])
    own = ("manifest", "code_sha256")
    return tuple(_row(name, *(side.get(name, ABSENT) for side in sides), may_differ=name in own) for name in names)


def _planned(recipe: Recipe, plan: Plan | None) -> list[Row]:
    """One value for both sides: the plan is the contract's."""
    return [Row(f"{name} (planned)", value, value) for name, value in consequences(recipe, plan).items()]


def _measured(reference: Bundle | None, port: Bundle | None) -> list[Row]:
    """As the training loops really took them."""
    measures: dict[str, Callable[[Bundle], str]] = {
        "optimizer steps": lambda bundle: f"{len(bundle.lines('batches', 'steps')):,}" if bundle.has("batches") else ABSENT,
        "tokens per update": lambda bundle: _mean(bundle, "tokens"),
        "loss tokens per update": lambda bundle: _mean(bundle, "loss_tokens"),
        "trainable parameters": _trainable,
    }
    sides = (reference, port)
    return [_row(f"{name} (recorded)", *(_or_absent(measure, side) for side in sides)) for name, measure in measures.items()]


def _or_absent(measure: Callable[[Bundle], str], bundle: Bundle | None) -> str:
    try:
        return ABSENT if bundle is None else measure(bundle)
    except NotRecorded:
        return ABSENT


def _trainable(bundle: Bundle) -> str:
    facts = bundle.lines("adapters", "facts")
    return f"{facts[0]['trainable_params']:,}" if facts else ABSENT


def _mean(bundle: Bundle, field: str) -> str:
    values = [line[field] for line in bundle.lines("batches", "steps")]
    return f"{sum(values) / len(values):,.1f} (mean)" if values else ABSENT


def _recorded_recipe(bundle: Bundle | None) -> dict[str, str] | None:
    return flat(json.loads((bundle.path / "recipe.json").read_text())) if bundle is not None else None


def _visible(bundle: Bundle | None) -> dict:
    return {} if bundle is None else {key: value for key, value in bundle.manifest.items() if key not in HIDDEN}


def _digests(bundle: Bundle | None) -> dict[str, str]:
    if bundle is None:
        return {}
    own = {key: bundle.manifest[key] for key in DIGESTS if key in bundle.manifest}
    return {"manifest": sha256_file(bundle.path / MANIFEST)} | flat(own)


def _row(name: str, reference: str, port: str, *, may_differ: bool = False) -> Row:
    both = ABSENT not in (reference, port)
    return Row(name, reference, port, both and reference != port and not may_differ)


def _versions_last(name: str) -> tuple[bool, str]:
    return name.startswith("versions."), name
