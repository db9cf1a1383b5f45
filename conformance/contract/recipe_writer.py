"""A recipe back into TOML, with absolute paths, so that it can be read from anywhere on this machine; or with others."""

import json
from pathlib import Path

from conformance.contract.recipe import Recipe


def write_recipe(path: Path, recipe: Recipe, *, checkpoint: str = "", rows: str = "", prompts: str | None = None) -> Path:
    """Reading `path` gives a recipe of the same digest. The paths that are given stand for the recipe's own."""
    values = recipe.to_dict()
    values["model"]["checkpoint"] = checkpoint or str(recipe.checkpoint_dir)
    values["data"]["rows"] = rows or str(recipe.rows_file)
    values["generation"]["rows"] = recipe.prompts_file and (prompts or str(recipe.prompts_file))
    tables = [f"[{table}]\n" + "".join(map(_line, fields.items())) for table, fields in values.items()]
    path.write_text("\n".join(tables))
    return path


def _line(item: tuple[str, object]) -> str:
    key, value = item
    return f"{key} = {json.dumps('none' if value is None else value)}\n"  # JSON's scalars and lists are TOML's
