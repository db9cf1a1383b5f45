"""Plants, records, judges: the clean pair once, the faults in long-lived recorders, then one outcome a fault."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.children import run_all, stack_child
from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, chosen, of_stack, read_faults
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.grounds import Ground, folder_of_ground, grounds
from conformance.faults.judging import Outcome, alarms, judge_fault
from conformance.faults.small import write_small
from conformance.faults.table import print_diagnosis, print_tables
from conformance.matching import signature_of
from conformance.pair import MODULES
from conformance.signatures import FILE as SIGNATURES
from conformance.signatures import read_signatures, recipe_of_signatures, write_signatures
from conformance.summary import ALL_PASS, CHECK_FAILED

RECORDINGS, ON_MESHES = "recordings", "meshes"


@dataclass(frozen=True, slots=True)
class Options:
    """`ids` None: every fault. `recorded`: judge what lies in `out`, record no fault. `seed`: of a recipe of its own, for evidence that
    no signature has seen.
    """

    out: Path
    ids: tuple[str, ...] | None = None
    jobs: int = 2
    seed: int | None = None
    recorded: bool = False
    write_signatures: bool = False


def run(options: Options) -> int:
    out, jobs = options.out, options.jobs
    faults = chosen(read_faults(), options.ids)
    if options.write_signatures and options.ids:
        raise ContractError("--write-signatures writes those of all faults: leave out --ids")
    out.mkdir(parents=True, exist_ok=True)
    clean = grounds(out, faults, options.seed)
    found = [alarm for ground in clean.values() for alarm in alarms(ground.pair, ground.given)]
    if not options.recorded:
        record(out, faults, jobs)
    outcomes = [judged(fault, clean, folder_of(out, faults, fault, jobs)) for fault in faults]
    print_tables(outcomes, found)
    recipe = load_recipe(write_small(out, options.seed)).digest
    if options.write_signatures:
        write_signatures(SIGNATURES, recipe, {one.fault.id: signature_of(one.findings) for one in outcomes})
        read_signatures.cache_clear()
        recipe_of_signatures.cache_clear()
    print_diagnosis(outcomes, recipe)
    return ALL_PASS if not found and all(outcome.as_expected for outcome in outcomes) else CHECK_FAILED


def judged(fault: Fault, clean: dict[bool, Ground], recordings: Path) -> Outcome:
    """Against the clean pair of the recipe that it was planted in."""
    ground = clean[fault.on_meshes]
    return judge_fault(fault, ground.pair, recordings, ground.given)


def record(out: Path, faults: tuple[Fault, ...], jobs: int) -> None:
    """Each of the port's recorders takes its share of the faults, then those that use both cores: the reference's, and meshes."""
    together = {name: share for job in range(jobs) if (share := shares(faults, jobs).get(name := f"port {job}"))}
    run_all(stack_child(name, _command(out, name, share)) for name, share in together.items())
    apart = {name: share for name, share in shares(faults, jobs).items() if name not in together}
    run_all(stack_child(name, _command(out, name, share)) for name, share in apart.items())


def shares(faults: tuple[Fault, ...], jobs: int) -> dict[str, tuple[Fault, ...]]:
    """The faults of each recorder, by its name: a stack's; `meshes` in it where they are planted in that recipe."""
    small = tuple(fault for fault in faults if not fault.on_meshes)
    meshes = tuple(fault for fault in faults if fault.on_meshes)
    found = {f"port {job}": of_stack(small, "port")[job::jobs] for job in range(jobs)}
    found |= {"reference": of_stack(small, "reference")}
    found |= {f"{stack} {ON_MESHES}": of_stack(meshes, stack) for stack in MODULES}
    return {name: share for name, share in found.items() if share}


def _command(out: Path, name: str, share: Iterable[Fault]) -> list[str]:
    """Of a recorder, whose folder is emptied first."""
    ids, recordings = ",".join(fault.id for fault in share), recordings_of(out, name)
    shutil.rmtree(recordings, ignore_errors=True)
    stack, ground = name.split()[0], folder_of_ground(out, ON_MESHES in name)
    peer = [str(ground / other) for other in MODULES if other != stack]
    return [
        MODULES[stack], "faults", "--recipe", str(ground / "recipe.toml"), "--out", str(recordings), "--ids", ids, "--peer", *peer
    ]  # fmt: skip


def recordings_of(out: Path, name: str) -> Path:
    return out / f"{RECORDINGS}-{name.replace(' ', '-')}"


def a_third(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """A third of each rung's, so that every rung has some: of those that share a start, which is quicker, where they are enough."""
    return tuple(fault for rung in RUNGS for fault in _third([one for one in faults if one.rung == rung]))


def _third(faults: list[Fault]) -> list[Fault]:
    """Spread evenly, rounded up."""
    count = -(-len(faults) // 3)
    shared = [fault for fault in faults if fault.start == "shared"]
    chosen = shared if len(shared) >= count else faults
    return [chosen[index * len(chosen) // count] for index in range(count)]


def folder_of(out: Path, faults: tuple[Fault, ...], fault: Fault, jobs: int) -> Path:
    """Where `record` has put it."""
    return recordings_of(out, next(name for name, share in shares(faults, jobs).items() if fault in share))
