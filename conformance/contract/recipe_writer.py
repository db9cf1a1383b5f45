"""A recipe back into TOML, with absolute paths, so that it can be read from anywhere on this machine."""

import json
from pathlib import Path

from conformance.contract.recipe import Recipe


def write_recipe(path: Path, recipe: Recipe) -> Path:
    """Reading `path` gives a recipe of the same digest."""
    values = recipe.to_dict()
    values["model"]["checkpoint"] = str(recipe.checkpoint_dir)
    values["data"]["rows"] = str(recipe.rows_file)
    values["generation"]["rows"] = recipe.prompts_file and str(recipe.prompts_file)
    tables = [f"[{table}]\n" + "".join(map(_line, fields.items())) for table, fields in values.items()]
    path.write_text("\n".join(tables))
    return path


def _line(item: tuple[str, object]) -> str:
    key, value = item
    return f"{key} = {json.dumps('none' if value is None else value)}\n"  # JSON's scalars and lists are TOML's
