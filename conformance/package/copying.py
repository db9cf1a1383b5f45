"""Copies into a package: files of their own, never links, and nothing from outside what was named."""

import shutil
from pathlib import Path

from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe, load_recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.gate.evidence import Given, ledger_path
from conformance.gate.proof import Files
from conformance.gate.tuning import NAME as TUNING
from conformance.package.layout import CERTIFICATES, CHECKPOINT, CLAIMS, MEASUREMENTS, PAIRS, PLAN, PRICES, RECIPE, SIDES

MOST_WEIGHT_BYTES = 4 * 2**30  # a real checkpoint is left out, and named by its digests
WEIGHTS = ".safetensors"


def copy_given(given: Given, claims: Path | None, folder: Path) -> list[Path]:
    """Returns weights that are left out: links to them, to be removed when everything has been computed."""
    left_out = []
    for number, files in enumerate(given.pairs, 1):
        left_out += _copy_pair(files, folder / PAIRS / f"{number}")
    for number, path in enumerate(given.measurements, 1):
        copy_tree(path, folder / MEASUREMENTS / f"{number:02d}-{path.resolve().name}")
    for number, path in enumerate(given.certificates, 1):
        copy_file(path, folder / CERTIFICATES / f"{number:02d}.json")
    for path, name in ((claims, CLAIMS), (given.prices, PRICES), (ledger_path(given), TUNING), (given.plan, PLAN)):
        if path:
            copy_file(path, folder / name)
    return left_out


def copy_tree(source: Path, target: Path) -> None:
    """Every file, failed launches and logs too; what is hidden is half done. A symbolic link is refused."""
    if not source.is_dir():
        raise ContractError(f"package: {source}: no such folder")
    source = source.resolve()
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_symlink():
            raise ContractError(f"package: {path} is a symbolic link, to {path.readlink()}: put the file itself there")
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            copy_file(path, target / inside)


def copy_file(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ContractError(f"package: {source}: no such file")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _copy_pair(files: Files, folder: Path) -> list[Path]:
    """Both bundles, and a recipe that finds its rows and its checkpoint beside itself."""
    recipe = load_recipe(files.recipe)
    for side in SIDES:
        copy_tree(getattr(files, side), folder / side)
    left_out = _copy_checkpoint(recipe, folder / CHECKPOINT)
    named = {"rows": recipe.rows_file, "prompts": recipe.prompts_file}
    near = {name: _copy_rows(path, folder / f"{name}{path.suffix}") for name, path in named.items() if path}
    write_recipe(folder / RECIPE, recipe, checkpoint=CHECKPOINT, rows=near["rows"], prompts=near.get("prompts"))
    return left_out


def _copy_rows(source: Path, target: Path) -> str:
    (copy_tree if source.is_dir() else copy_file)(source, target)
    return target.name


def _copy_checkpoint(recipe: Recipe, target: Path) -> list[Path]:
    files = sorted(path for path in recipe.checkpoint_dir.iterdir() if path.is_file())
    weights = [path for path in files if path.suffix == WEIGHTS]
    left_out = weights if sum(path.stat().st_size for path in weights) > MOST_WEIGHT_BYTES else []
    for path in files:
        if path not in left_out:
            copy_file(path, target / path.name)
    for path in left_out:
        (target / path.name).symlink_to(path)
    return [target / path.name for path in left_out]
