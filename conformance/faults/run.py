"""Plants, records, judges: the clean pair once, the faults in long-lived recorders, then one outcome a fault."""

import dataclasses
from pathlib import Path

import numpy as np

from conformance.children import Child, run_all, stack_child
from conformance.contract.errors import ContractError
from conformance.contract.faults import RECORDERS, Fault, chosen, of_stack, read_faults
from conformance.contract.recipe import load_recipe
from conformance.faults.grounds import Ground, folder_of_ground, grounds, programs_of
from conformance.faults.judging import Outcome, alarms, judge_fault
from conformance.faults.recordings import folder_of, forget, recordings_of
from conformance.faults.serving.client import theatre
from conformance.faults.serving.server import serve_clean, why_not
from conformance.faults.small import write_small
from conformance.faults.table import print_diagnosis, print_tables
from conformance.matching import signature_of
from conformance.pair import MODULES
from conformance.signatures import FILE as SIGNATURES
from conformance.signatures import read_signatures, recipe_of_signatures, write_signatures
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED

ON_MESHES = "meshes"
SERVING = "conformance.faults.serving"


@dataclasses.dataclass(frozen=True, slots=True)
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
    out, wanted = options.out, chosen(read_faults(), options.ids)
    if options.write_signatures and options.ids:
        raise ContractError("--write-signatures writes those of all faults: leave out --ids")
    out.mkdir(parents=True, exist_ok=True)
    clients, others = of_stack(wanted, "client"), of_stack(wanted, *RECORDERS, "server")
    outcomes, found = _of_the_ladder(options, others) if others else ([], [])
    if clients:
        with theatre() as stage:
            found += stage.alarms(clients)
            outcomes += [stage.outcome(fault) for fault in clients]
    print_tables(outcomes, found)
    if others:
        _diagnose(options, [one for one in outcomes if one.fault.stack in RECORDERS])
    return _code(outcomes, found)


def _code(outcomes: list[Outcome], found: list[str]) -> int:
    if found or any(not one.as_expected and not one.not_proven for one in outcomes):
        return CHECK_FAILED
    return NOT_DECIDED if any(one.not_proven for one in outcomes) else ALL_PASS


def _of_the_ladder(options: Options, faults: tuple[Fault, ...]) -> tuple[list[Outcome], list[str]]:
    """(outcomes, false alarms) of those that are judged by the ladder's checks."""
    out, jobs, served = options.out, options.jobs, of_stack(faults, "server")
    clean, missing = grounds(out, faults, options.seed, jobs), _why_not_served(options) if served else ""
    if served and not missing and not options.recorded:
        clean[False] = dataclasses.replace(clean[False], pair=serve_clean(out, clean[False].pair))
    found = [alarm for ground in clean.values() for alarm in alarms(ground.pair, ground.given)]
    if not options.recorded:
        record(out, faults if not missing else of_stack(faults, *RECORDERS), jobs)
    return [judged(fault, clean, out, missing) for fault in faults], found


def _why_not_served(options: Options) -> str:
    """Why faults of a server can't be judged; empty: they can."""
    if not options.recorded:
        return why_not()
    return "" if recordings_of(options.out, "server").is_dir() else f"no faults of a server were recorded in {options.out}"


def _diagnose(options: Options, outcomes: list[Outcome]) -> None:
    recipe = load_recipe(write_small(options.out, options.seed)).digest
    if options.write_signatures:
        write_signatures(SIGNATURES, recipe, {one.fault.id: signature_of(one.findings) for one in outcomes})
        read_signatures.cache_clear()
        recipe_of_signatures.cache_clear()
    print_diagnosis(outcomes, recipe)


def judged(fault: Fault, clean: dict[bool, Ground], out: Path, missing: str = "") -> Outcome:
    """Against the clean pair of the recipe that it was planted in. `missing`: why there is no server."""
    if fault.stack == "server" and missing:
        return Outcome(fault, not_proven=missing)
    ground = clean[fault.on_meshes]
    return judge_fault(fault, ground.pair, folder_of(out, fault), ground.given)


def record(out: Path, faults: tuple[Fault, ...], jobs: int) -> None:
    """Each of the port's recorders takes its share of the faults, then those that use both cores: the reference's, meshes, servers."""
    together = {name: share for job in range(jobs) if (share := shares(faults, jobs).get(name := f"port {job}"))}
    run_all(_recorder(out, name, share) for name, share in together.items())
    apart = {name: share for name, share in shares(faults, jobs).items() if name not in together}
    run_all(_recorder(out, name, share) for name, share in apart.items())


def shares(faults: tuple[Fault, ...], jobs: int) -> dict[str, tuple[Fault, ...]]:
    """The faults of each recorder, by its name: a stack's; `meshes` in it where they are planted in that recipe."""
    small = tuple(fault for fault in faults if not fault.on_meshes)
    meshes = tuple(fault for fault in faults if fault.on_meshes)
    found = {f"port {job}": of_stack(small, "port")[job::jobs] for job in range(jobs)}
    found |= {stack: of_stack(small, stack) for stack in ("reference", "server")}
    found |= {f"{stack} {ON_MESHES}": of_stack(meshes, stack) for stack in MODULES}
    return {name: share for name, share in found.items() if share}


def _recorder(out: Path, name: str, share: tuple[Fault, ...]) -> Child:
    """What was recorded of these faults before is removed."""
    ids, recordings = ",".join(fault.id for fault in share), recordings_of(out, name)
    forget(out, share)
    stack, ground = name.split()[0], folder_of_ground(out, ON_MESHES in name)
    recipe = ["--recipe", str(ground / "recipe.toml"), "--out", str(recordings), "--ids", ids]
    if stack == "server":
        return stack_child(name, [SERVING, *recipe, "--bundle", str(ground / "port")])
    peer = [str(ground / other) for other in MODULES if other != stack]
    return stack_child(name, [MODULES[stack], "faults", *recipe, "--peer", *peer], programs=programs_of(out))


def a_third(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """A third of each rung's, so that every rung has some: the quick ones, where they are enough."""
    rungs = dict.fromkeys(fault.rung for fault in faults)
    return tuple(fault for rung in rungs for fault in _third([one for one in faults if one.rung == rung]))


def _third(faults: list[Fault]) -> list[Fault]:
    """Spread evenly from the first to the last, rounded up. The catalogue has a rung's faults of the port, then the reference's."""
    count = -(-len(faults) // 3)
    quick = [fault for fault in faults if not fault.slow]
    shared = [fault for fault in quick if fault.start == "shared"]
    chosen = next(those for those in (shared, quick, faults) if len(those) >= count)
    return [chosen[round(place)] for place in np.linspace(0, len(chosen) - 1, count)]
