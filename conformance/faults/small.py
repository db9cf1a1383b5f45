"""The small recipe that faults are planted in: the tiny one with so few rows that a whole run takes seconds.

Faults of the rung *sharding* are planted in the same on two of its layers: 8 devices compile each program for each device.
"""

import dataclasses
import json
from pathlib import Path

from conformance.contract.recipe import Seeds, Trajectory, load_recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.saved import TINY
from fixtures.two_layers import cut

# Alike and seen three times: the loss falls by 40 % in 8 steps, so that the ladder's control of learning holds here too.
FAMILY, ROWS, EPOCHS = "lfsr", 10, 3  # 7 full steps of 4 rows and a partial one of 2
WARMUP_STEPS = 1  # the warm state's step, 5 past the warm-up, is then still one of the schedule's
RUNS = Trajectory(perturbed_runs=4, bf16_runs=6, dropout_pairs=5)
MESH_RUNS = Trajectory(perturbed_runs=4, bf16_runs=1, dropout_pairs=1)  # the rung takes the envelope alone


def write_small(folder: Path, seed: int | None = None) -> Path:
    """FOLDER/recipe.toml with its rows beside it. `seed`: of data, adapters and dropout instead of the tiny recipe's."""
    tiny = load_recipe(TINY)
    lines = tiny.rows_file.read_text().splitlines(keepends=True)
    rows = folder / "rows.jsonl"
    rows.write_text("".join([line for line in lines if json.loads(line).get("family") == FAMILY][:ROWS]))
    small = dataclasses.replace(
        tiny,
        data=dataclasses.replace(tiny.data, rows=str(rows.resolve()), epochs=EPOCHS),
        schedule=dataclasses.replace(tiny.schedule, warmup_steps=WARMUP_STEPS),
        trajectory=RUNS,
        seeds=tiny.seeds if seed is None else Seeds(seed, seed, seed),
    )
    return write_recipe(folder / "recipe.toml", small)


def write_two_layers(folder: Path, seed: int | None = None) -> Path:
    """FOLDER/recipe.toml: the small recipe on a local and a global layer, with its checkpoint beside it."""
    small, checkpoint = load_recipe(write_small(folder, seed)), folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    return write_recipe(folder / "recipe.toml", dataclasses.replace(cut(small, checkpoint), trajectory=MESH_RUNS))
