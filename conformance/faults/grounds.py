"""What faults are planted in: the small recipe, and two layers of it on eight devices; a clean pair of each, once."""

from dataclasses import dataclass
from pathlib import Path

from conformance.children import run_all, stack_child
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.faults import MESHES, Fault
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.judging import Given
from conformance.faults.small import write_small, write_two_layers
from conformance.pair import MODULES, Pair, exchange_stacks, record_stacks
from conformance.tolerances import read_tolerances

NOT_RECORDED = (MESHES, "serving", "evaluation")
RECORDED = tuple(rung for rung in RUNGS if rung not in NOT_RECORDED)  # of the small recipe's pair
ENVELOPE = ("trajectory", MESHES)  # of the pair on meshes: the rung, and the reference's own spread


@dataclass(frozen=True, slots=True)
class Ground:
    """Clean bundles of one recipe in `folder`, and what checks take beside them."""

    folder: Path
    pair: Pair
    given: Given


def grounds(out: Path, faults: tuple[Fault, ...], seed: int | None = None) -> dict[bool, Ground]:
    """By `Fault.on_meshes`: those that `faults` need. Clean bundles that lie there are kept."""
    found = {}
    for on_meshes in needed(faults):
        folder = folder_of_ground(out, on_meshes)
        pair = clean_pair_on_meshes(folder, faults, seed) if on_meshes else clean_pair(folder, seed)
        found[on_meshes] = Ground(folder, pair, fixtures(pair))
    return found


def needed(faults: tuple[Fault, ...]) -> list[bool]:
    return sorted({fault.on_meshes for fault in faults})


def folder_of_ground(out: Path, on_meshes: bool) -> Path:
    return out / "meshes" if on_meshes else out


def clean_pair(out: Path, seed: int | None = None) -> Pair:
    """Both stacks' bundles of the small recipe without a fault; those that lie in `out` are kept."""
    recipe_file, paths = write_small(out, seed), {stack: out / stack for stack in MODULES}
    if missing := _missing(paths):
        record_stacks(recipe_file, missing, RECORDED)
        exchange_stacks(paths)
    return _pair(recipe_file, paths)


def clean_pair_on_meshes(out: Path, faults: tuple[Fault, ...], seed: int | None = None) -> Pair:
    """The same of two layers: the reference's rung sharding, with its trajectories for the envelope; the port's in part.

    The port records the meshes that `faults` are planted on, in one process: all of them, in processes of their own, take four
    times as long and are the ladder's business.
    """
    out.mkdir(parents=True, exist_ok=True)
    recipe_file, paths = write_two_layers(out, seed), {stack: out / stack for stack in MODULES}
    ids = ",".join(fault.id for fault in faults if fault.on_meshes)
    arguments = {
        "reference": ["record", "--rungs", ",".join(ENVELOPE)],
        "port": ["faults", "--clean", "--ids", ids],
    }
    run_all(
        stack_child(stack, [MODULES[stack], *arguments[stack], "--recipe", str(recipe_file), "--out", str(path)])
        for stack, path in _missing(paths).items()
    )
    return _pair(recipe_file, paths)


def _missing(paths: dict[str, Path]) -> dict[str, Path]:
    return {stack: path for stack, path in paths.items() if not (path / MANIFEST).is_file()}


def _pair(recipe_file: Path, paths: dict[str, Path]) -> Pair:
    return Pair(load_recipe(recipe_file), *(Bundle(paths[stack]) for stack in ("reference", "port")))


def fixtures(pair: Pair) -> Given:
    return {"plan": make_plan(pair.recipe), "recipe": pair.recipe, "limits": read_tolerances()}
