"""Plants, records, judges: the clean pair once, the faults in long-lived recorders, then one outcome a fault."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.children import run_all, stack_child
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, chosen, of_stack, read_faults
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.judging import Given, alarms, judge_fault
from conformance.faults.small import write_small
from conformance.faults.table import print_diagnosis, print_tables
from conformance.matching import signature_of
from conformance.pair import MODULES, Pair, exchange_stacks, record_stacks
from conformance.signatures import FILE as SIGNATURES
from conformance.signatures import read_signatures, recipe_of_signatures, write_signatures
from conformance.summary import ALL_PASS, CHECK_FAILED
from conformance.tolerances import read_tolerances

RECORDED = tuple(rung for rung in RUNGS if rung not in ("sharding", "serving", "evaluation"))  # of the clean pair
RECORDINGS = "recordings"


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
    pair = clean_pair(out, options.seed)
    given = fixtures(pair)
    found = alarms(pair, given)
    if not options.recorded:
        record(out, faults, jobs)
    outcomes = [judge_fault(fault, pair, folder_of(out, faults, fault, jobs), given) for fault in faults]
    print_tables(outcomes, found)
    if options.write_signatures:
        write_signatures(SIGNATURES, pair.recipe.digest, {one.fault.id: signature_of(one.findings) for one in outcomes})
        read_signatures.cache_clear()
        recipe_of_signatures.cache_clear()
    print_diagnosis(outcomes, pair.recipe.digest)
    return ALL_PASS if not found and all(outcome.as_expected for outcome in outcomes) else CHECK_FAILED


def clean_pair(out: Path, seed: int | None = None) -> Pair:
    """Both stacks' bundles of the small recipe without a fault; those that lie in `out` are kept."""
    recipe_file = write_small(out, seed)
    paths = {stack: out / stack for stack in MODULES}
    missing = {stack: path for stack, path in paths.items() if not (path / MANIFEST).is_file()}
    if missing:
        record_stacks(recipe_file, missing, RECORDED)
        exchange_stacks(paths)
    return Pair(load_recipe(recipe_file), *(Bundle(paths[stack]) for stack in ("reference", "port")))


def fixtures(pair: Pair) -> Given:
    return {"plan": make_plan(pair.recipe), "recipe": pair.recipe, "limits": read_tolerances()}


def record(out: Path, faults: tuple[Fault, ...], jobs: int) -> None:
    """Each of the port's recorders takes its share of the faults, then the reference's takes its own."""
    shares = {f"port {job}": share for job in range(jobs) if (share := of_stack(faults, "port")[job::jobs])}
    run_all(stack_child(name, _command(out, name, share)) for name, share in shares.items())
    if own := of_stack(faults, "reference"):
        run_all([stack_child("reference", _command(out, "reference", own))])


def _command(out: Path, name: str, share: Iterable[Fault]) -> list[str]:
    """Of a recorder, whose folder is emptied first."""
    ids, recordings = ",".join(fault.id for fault in share), recordings_of(out, name)
    shutil.rmtree(recordings, ignore_errors=True)
    return [MODULES[name.split()[0]], "faults", "--recipe", str(out / "recipe.toml"), "--out", str(recordings), "--ids", ids]


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
    own = of_stack(faults, fault.stack)
    return recordings_of(out, "reference" if fault.stack == "reference" else f"port {own.index(fault) % jobs}")
