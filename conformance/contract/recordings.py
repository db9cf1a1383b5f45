"""Which recipes one `record` command records into which bundles: one, or those of a folder one after the other."""

from pathlib import Path

from conformance.contract.errors import ContractError


def recordings(recipe: Path, out: Path) -> list[tuple[Path, Path]]:
    """(recipe file, bundle). `recipe` may be a folder: each NAME.toml in it becomes OUT/NAME; those already there are kept."""
    if not recipe.is_dir():
        return [(recipe, out)]
    found = sorted(recipe.glob("*.toml"))
    if not found:
        raise ContractError(f"recipe folder {recipe}: no *.toml in it")
    out.mkdir(parents=True, exist_ok=True)
    return [(path, out / path.stem) for path in found if not (out / path.stem).exists()]
