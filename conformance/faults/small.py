"""The small recipe that faults are planted in: the tiny one with so few rows that a whole run takes seconds."""

import dataclasses
from pathlib import Path

from conformance.contract.recipe import Recipe, Trajectory, load_recipe
from conformance.contract.recipe_writer import write_recipe

TINY = Path(__file__).parents[1] / "recipes" / "tiny.toml"
ROWS = 30  # 7 full steps of 4 rows and a partial one of 2; the warm state's step is then still one of the schedule's
WARMUP_STEPS = 1
RUNS = Trajectory(perturbed_runs=4, bf16_runs=2, dropout_pairs=5)


def write_small(folder: Path, tiny: Recipe | None = None) -> Path:
    """FOLDER/recipe.toml with its rows beside it."""
    tiny = tiny or load_recipe(TINY)
    rows = folder / "rows.jsonl"
    rows.write_text("".join(tiny.rows_file.read_text().splitlines(keepends=True)[:ROWS]))
    small = dataclasses.replace(
        tiny,
        data=dataclasses.replace(tiny.data, rows=str(rows.resolve())),
        schedule=dataclasses.replace(tiny.schedule, warmup_steps=WARMUP_STEPS),
        trajectory=RUNS,
    )
    return write_recipe(folder / "recipe.toml", small)
