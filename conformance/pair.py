"""Getting two bundles: opening given ones, or recording both stacks side by side, one process each."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.children import Child, check_written, command_child, run_all, stack_child
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.contract.recipe import Recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.serving.identity import MERGED

MODULES = {"reference": "reference", "port": "tpu_impl"}
# The reference's repeated runs (its noise floor) are half of all work: they fill the core that the port leaves free.
SERVE = ["conformance.contract.serving.cpu", "--record", "--port", "0"]  # on other machines: `parity serve --record`
MORE = {"reference": ["--jobs", "2"], "port": []}


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands that stand for a stack (`--port`, `--reference`), by its name; `folder` is where they run, None: here."""

    by_stack: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def check(self, bundles: Mapping[str, Path | None]) -> None:
        """Refuses a command for a stack whose bundle is given."""
        twice = [stack for stack in self.by_stack if bundles[stack]]
        if twice:
            raise ContractError(f"--{twice[0]} and --{twice[0]}-bundle: give a command that records, or a recorded bundle, not both")


OURS = Commands()


@dataclass(frozen=True, slots=True)
class Pair:
    """`commands`: the stacks that somebody else's command has recorded."""

    recipe: Recipe
    reference: Bundle
    port: Bundle
    commands: Commands = OURS


def replace_checkpoint(recipe: Recipe, checkpoint: Path | None) -> Recipe:
    """`recipe` with another checkpoint folder."""
    if checkpoint is None:
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, checkpoint=str(checkpoint.resolve())))


def record_pair(
    recipe: Recipe, folder: Path, reference: Path | None, port: Path | None, commands: Commands = OURS
) -> Pair:
    """Both bundles; those not given are recorded below `folder`, side by side, then exchange their files, and are served."""
    given = {"reference": reference, "port": port}
    commands.check(given)
    missing = [stack for stack, path in given.items() if path is None]
    paths = {stack: path or folder / stack for stack, path in given.items()}
    if missing:
        _record(recipe, folder, {stack: paths[stack] for stack in missing}, commands)
        if all(is_servable(Bundle(path)) for path in paths.values()):
            serve_stacks(folder, {stack: paths[stack] for stack in missing})
    pair = Pair(recipe, Bundle(paths["reference"]), Bundle(paths["port"]), commands)
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
    for stack, command in pair.commands.by_stack.items():
        return f"the {stack} was recorded by `{command}`, which has no exchange: files were not loaded across"
    for bundle, peer in ((pair.reference, pair.port), (pair.port, pair.reference)):
        again = f"run `parity exchange {bundle.stack} --bundle {bundle.path} --peer {peer.path}`"
        if not bundle.exchanged:
            return f"{bundle.stack} has not loaded its peer's files: {again}"
        if bundle.exchange_peer != sha256_file(peer.path / MANIFEST):
            return f"{bundle.stack} loaded the files of another peer: {again}"
    return ""


def _record(recipe: Recipe, folder: Path, paths: dict[str, Path], commands: Commands) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record_stacks(write_recipe(folder / "recipe.toml", recipe), paths, commands=commands)
    if len(paths) == len(MODULES) and not commands.by_stack:
        exchange_stacks(paths)


def record_stacks(recipe_file: Path, paths: dict[str, Path], rungs: Sequence[str] = (), commands: Commands = OURS) -> None:
    """Records the stacks of `paths` side by side, each into its path; `rungs` none: all. A stack with a command is that command."""
    children = recorders(recipe_file, paths, rungs, commands)
    run_all(children.values())
    for stack in set(commands.by_stack) & set(paths):
        check_written(children[stack], paths[stack], stack)


def recorders(
    recipe_file: Path, paths: dict[str, Path], rungs: Sequence[str] = (), commands: Commands = OURS, programs: Path | None = None
) -> dict[str, Child]:
    """By stack: what will record it, as `record_stacks` does. What lies in its path is removed. `programs`: as of `stack_child`."""
    chosen = ["--rungs", ",".join(rungs)] if rungs else []
    children = {}
    for stack, path in paths.items():
        shutil.rmtree(path, ignore_errors=True)
        arguments = ["--recipe", str(recipe_file.resolve()), "--out", str(path.resolve()), *chosen]
        if stack in commands.by_stack:
            children[stack] = command_child(stack, commands.by_stack[stack], arguments, commands.folder)
        else:
            children[stack] = stack_child(stack, [MODULES[stack], "record", *arguments, *MORE[stack]], programs=programs)
    return children


def exchange_stacks(paths: dict[str, Path]) -> None:
    """Lets both stacks load the other's files."""
    peers = {"reference": paths["port"], "port": paths["reference"]}
    run_all(stack_child(s, [MODULES[s], "exchange", "--bundle", str(paths[s]), "--peer", str(peers[s])]) for s in paths)


def serve_stacks(folder: Path, paths: dict[str, Path]) -> None:
    """Serves each merged checkpoint on this machine, and records the rung *serving*; logs of the servers go beside the bundles."""
    given = ["--recipe", str(folder / "recipe.toml")]
    run_all(
        stack_child(stack, [*SERVE, *given, "--bundle", str(path), "--log", str(folder / f"serving-{stack}.log")])
        for stack, path in paths.items()
    )


def is_servable(bundle: Bundle) -> bool:
    """Whether it has the merged checkpoint, and what the answers of a server are compared with."""
    return (bundle.path / MERGED).is_dir() and all(bundle.has(rung) for rung in ("logits", "merge", "generation"))
