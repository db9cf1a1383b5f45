"""Merging: base + adapter by PEFT in the base's dtype, written as a checkpoint of the base's form; wrong merges as controls."""

from pathlib import Path

import numpy as np

from conformance.contract.checkpoint_files import read_tensors, write_checkpoint
from conformance.contract.draws import Tensors
from conformance.contract.recipe import Recipe
from conformance.contract.topology import hub_name
from reference.adapter import ALPHA_CONTROL, attach_adapter, save_adapter, scaled, set_adapter
from reference.model import CHECKPOINT_PRECISION, export_weights, load_checkpoint


def write_adapter(recipe: Recipe, adapter: Tensors, folder: Path) -> None:
    """The adapter as PEFT saves it."""
    model = attach_adapter(load_checkpoint(recipe.checkpoint_dir), recipe)
    set_adapter(model, adapter)
    save_adapter(model, folder)


def merged_weights(recipe: Recipe, adapter: Tensors) -> Tensors:
    """Every tensor of the language model after PEFT's merge_and_unload, in the checkpoint's dtype."""
    model = attach_adapter(load_checkpoint(recipe.checkpoint_dir, CHECKPOINT_PRECISION[recipe.model.dtype]), recipe)
    set_adapter(model, adapter)
    return export_weights(model.merge_and_unload())


def merge(recipe: Recipe, adapter: Tensors, out: Path) -> Tensors:
    """Writes the merged checkpoint: the base's shards, names, metadata and companion files; returns its tensors."""
    merged, base = merged_weights(recipe, adapter), read_tensors(recipe.checkpoint_dir)
    tensors = {name: merged.get(hub_name(name), value) for name, value in base.items()}
    write_checkpoint(out, tensors, like=recipe.checkpoint_dir)
    return tensors


def wrong_merges(recipe: Recipe, adapter: Tensors, weights: tuple[str, ...]) -> dict[str, Tensors]:
    """Control -> weight -> the base itself, a merge at alpha x 1.01, and one whose delta is transposed."""
    base = read_tensors(recipe.checkpoint_dir)
    louder = merged_weights(scaled(recipe, alpha=ALPHA_CONTROL), adapter)
    return {
        "base": {name: np.array(base[f"{name}.weight"]) for name in weights},
        "alpha": {name: louder[f"{name}.weight"] for name in weights},
        "transposed": {name: _transposed(base[f"{name}.weight"], adapter, name, recipe.scale) for name in weights},
    }


def _transposed(base: np.ndarray, adapter: Tensors, weight: str, scale: float) -> np.ndarray:
    """What a loader makes that takes the delta's bytes in the other order."""
    delta = np.float32(scale) * (adapter[f"{weight}.lora_B"] @ adapter[f"{weight}.lora_A"])
    return (base.astype(np.float32) + delta.T.reshape(base.shape)).astype(base.dtype)
