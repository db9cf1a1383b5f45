"""What faults are planted in: the small recipe, and two layers of it on eight devices; a clean pair of each, once."""

from dataclasses import dataclass
from pathlib import Path

from conformance.children import Child, run_all, stack_child
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.faults import MESHES, Fault
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.judging import Given
from conformance.faults.small import write_small, write_two_layers
from conformance.pair import MODULES, Pair, exchange_problem, exchange_stacks, recorders
from conformance.tolerances import read_tolerances

NOT_RECORDED = (MESHES, "serving", "evaluation")
RECORDED = tuple(rung for rung in RUNGS if rung not in NOT_RECORDED)  # of the small recipe's pair
EXCHANGED = "merge"  # the rung whose files the other stack loads
ENVELOPE = ("trajectory", MESHES)  # of the pair on meshes: the rung, and the reference's own spread


@dataclass(frozen=True, slots=True)
class Ground:
    """Clean bundles of one recipe in `folder`, and what checks take beside them."""

    folder: Path
    pair: Pair
    given: Given


def grounds(out: Path, faults: tuple[Fault, ...], seed: int | None = None, jobs: int = 2) -> dict[bool, Ground]:
    """By `Fault.on_meshes`: those that `faults` need. Clean bundles that lie there are kept, others recorded, `jobs` at a time.

    The small recipe's port takes about as long as the other three recorders together, so it is the first to start.
    """
    folders = {on_meshes: folder_of_ground(out, on_meshes) for on_meshes in needed(faults)}
    missing = [_on_meshes(out, faults, seed) if on_meshes else _small(out, seed) for on_meshes in folders]
    run_all((child for children in missing for child in children), jobs)
    return {on_meshes: _ground(folder) for on_meshes, folder in folders.items()}


def small_ground(out: Path, jobs: int = 2) -> Ground:
    """The same of the small recipe alone."""
    run_all(_small(out), jobs)
    return _ground(out)


def needed(faults: tuple[Fault, ...]) -> list[bool]:
    return sorted({fault.on_meshes for fault in faults})


def folder_of_ground(out: Path, on_meshes: bool) -> Path:
    return out / "meshes" if on_meshes else out


def programs_of(out: Path) -> Path:
    """Of all recorders of a run: what they share is compiled once. JAX keys a program by its text, so that no fault meets another's."""
    return out / "programs"


def _small(out: Path, seed: int | None = None) -> list[Child]:
    """What records the missing bundles of the small recipe without a fault, the port's first."""
    children = recorders(write_small(out, seed), _missing(out), RECORDED, programs=programs_of(out))
    return [children[stack] for stack in sorted(children)]


def _on_meshes(out: Path, faults: tuple[Fault, ...], seed: int | None) -> list[Child]:
    """The same of two layers: the reference's rung sharding, with its trajectories for the envelope; the port's in part.

    The port records the meshes that `faults` are planted on, in one process: all of them, in processes of their own, take four
    times as long and are the ladder's business.
    """
    folder = folder_of_ground(out, on_meshes=True)
    folder.mkdir(parents=True, exist_ok=True)
    recipe_file, programs = write_two_layers(folder, seed), programs_of(out)
    ids = ",".join(fault.id for fault in faults if fault.on_meshes)
    arguments = {
        "reference": ["record", "--rungs", ",".join(ENVELOPE)],
        "port": ["faults", "--clean", "--ids", ids],
    }
    return [
        stack_child(stack, [MODULES[stack], *arguments[stack], "--recipe", str(recipe_file), "--out", str(path)], programs=programs)
        for stack, path in _missing(folder).items()
    ]


def _paths(out: Path) -> dict[str, Path]:
    return {stack: out / stack for stack in MODULES}


def _missing(out: Path) -> dict[str, Path]:
    return {stack: path for stack, path in _paths(out).items() if not (path / MANIFEST).is_file()}


def _ground(out: Path) -> Ground:
    """What was recorded in `out`; the small recipe's pair loads each other's files."""
    pair = _pair(out)
    if pair.port.has(EXCHANGED) and exchange_problem(pair):
        exchange_stacks(_paths(out))
        pair = _pair(out)
    return Ground(out, pair, fixtures(pair))


def _pair(out: Path) -> Pair:
    paths = _paths(out)
    return Pair(load_recipe(out / "recipe.toml"), *(Bundle(paths[stack]) for stack in ("reference", "port")))


def fixtures(pair: Pair) -> Given:
    return {"plan": make_plan(pair.recipe), "recipe": pair.recipe, "limits": read_tolerances()}
