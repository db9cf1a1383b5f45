"""Getting two bundles: opening given ones, or recording both stacks side by side, one process each."""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.contract.recipe import Recipe
from conformance.contract.recipe_writer import write_recipe

# Unless the user says otherwise. One thread a process: two recorders share two cores, and oversubscribed OpenMP is several
# times slower. JAX's platform is the user's: where there is no accelerator, the installed JAX has none either.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
MODULES = {"reference": "reference", "port": "tpu_impl"}
# The reference's repeated runs (its noise floor) are half of all work: they fill the core that the port leaves free.
MORE = {"reference": ["--jobs", "2"], "port": []}


@dataclass(frozen=True, slots=True)
class Pair:
    recipe: Recipe
    reference: Bundle
    port: Bundle


def replace_checkpoint(recipe: Recipe, checkpoint: Path | None) -> Recipe:
    """`recipe` with another checkpoint folder."""
    if checkpoint is None:
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, checkpoint=str(checkpoint.resolve())))


def record_pair(recipe: Recipe, folder: Path, reference: Path | None, port: Path | None) -> Pair:
    """Both bundles; those not given are recorded below `folder`, side by side, and then exchange their files."""
    given = {"reference": reference, "port": port}
    missing = [stack for stack, path in given.items() if path is None]
    paths = {stack: path or folder / stack for stack, path in given.items()}
    if missing:
        _record(recipe, folder, {stack: paths[stack] for stack in missing})
    pair = Pair(recipe, Bundle(paths["reference"]), Bundle(paths["port"]))
    check_pair(pair)
    return pair


def check_pair(pair: Pair) -> None:
    """Refuses two bundles that are not of this recipe, its rows and one checkpoint, or whose stacks are swapped or strangers."""
    expected = {"recipe_sha256": pair.recipe.digest, "plan_sha256": make_plan(pair.recipe).digest}
    for stack, bundle in (("reference", pair.reference), ("port", pair.port)):
        if bundle.stack != stack:
            raise ContractError(f"bundle {bundle.path}: recorded by stack {bundle.stack!r}, given as the {stack}")
        for key, value in expected.items():
            if bundle.manifest[key] != value:
                raise ContractError(
                    f"bundle {bundle.path}: {key} {bundle.manifest[key][:12]} is not the recipe's {value[:12]}: "
                    "recorded from another recipe or other rows"
                )
    if pair.reference.manifest["checkpoint_sha256"] != pair.port.manifest["checkpoint_sha256"]:
        raise ContractError(f"bundles {pair.reference.path} and {pair.port.path} are of two different checkpoints")


def exchange_problem(pair: Pair) -> str:
    """Why the second phases cannot be compared; empty when both loaded this peer's files."""
    for bundle, peer in ((pair.reference, pair.port), (pair.port, pair.reference)):
        again = f"run `parity exchange {bundle.stack} --bundle {bundle.path} --peer {peer.path}`"
        if not bundle.exchanged:
            return f"{bundle.stack} has not loaded its peer's files: {again}"
        if bundle.exchange_peer != sha256_file(peer.path / MANIFEST):
            return f"{bundle.stack} loaded the files of another peer: {again}"
    return ""


def _record(recipe: Recipe, folder: Path, paths: dict[str, Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record_stacks(write_recipe(folder / "recipe.toml", recipe), paths)
    if len(paths) == len(MODULES):
        exchange_stacks(paths)


def record_stacks(recipe_file: Path, paths: dict[str, Path], rungs: Sequence[str] = ()) -> None:
    """Records the stacks of `paths` side by side, each into its path; `rungs` none: all."""
    for path in paths.values():
        shutil.rmtree(path, ignore_errors=True)
    chosen = ["--rungs", ",".join(rungs)] if rungs else []
    record = {s: ["record", "--recipe", str(recipe_file), "--out", str(path), *chosen] for s, path in paths.items()}
    run_all({s: [MODULES[s], *arguments, *MORE[s]] for s, arguments in record.items()})


def exchange_stacks(paths: dict[str, Path]) -> None:
    """Lets both stacks load the other's files."""
    peers = {"reference": paths["port"], "port": paths["reference"]}
    run_all({s: [MODULES[s], "exchange", "--bundle", str(paths[s]), "--peer", str(peers[s])] for s in paths})


def run_all(commands: dict[str, list[str]]) -> None:
    """Runs `python -m COMMAND` of each label at the same time; the first failure or Ctrl-C stops the others."""
    running = {label: _start(command) for label, command in commands.items()}
    try:
        for label, process in running.items():
            if process.wait():
                raise ContractError(f"{label}: `python -m {' '.join(commands[label])}` ended with exit code {process.returncode}")
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


def _start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", *command], env=ENVIRONMENT | os.environ, stdin=subprocess.DEVNULL)
