"""Merging: base + adapter in float32, rounded once into the base's dtype, written as a checkpoint of the base's form.

Stock: Tunix's saver for merged LoRA knows no Gemma 4, reads one `model.safetensors` only, copies the old index, writes no metadata
and removes the output folder first.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from conformance.contract.checkpoint_files import read_tensors, write_checkpoint
from conformance.contract.draws import Tensors
from conformance.contract.recipe import Recipe
from conformance.contract.topology import hub_name
from tpu_impl.adapter import ALPHA_CONTROL, save_adapter, scaled, set_adapter


def write_adapter(model, recipe: Recipe, adapter: Tensors, folder: Path) -> None:
    """The adapter as PEFT saves it."""
    set_adapter(model, adapter)
    save_adapter(model, recipe, folder)


class Merged(Mapping):
    """The merged checkpoint's tensors by the base's own names, each made when it is asked for: one in memory at a time."""

    def __init__(self, recipe: Recipe, adapter: Tensors):
        self._base, self._adapter, self._scale = read_tensors(recipe.checkpoint_dir), adapter, np.float32(recipe.scale)

    def __getitem__(self, name: str) -> np.ndarray:
        weight, base = hub_name(name).removesuffix(".weight"), self._base[name]
        if f"{weight}.lora_A" not in self._adapter:
            return base
        delta = self._adapter[f"{weight}.lora_B"] @ self._adapter[f"{weight}.lora_A"]
        return (base.astype(np.float32) + self._scale * delta).astype(base.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)


def merge(recipe: Recipe, adapter: Tensors, out: Path) -> Merged:
    """Writes the merged checkpoint: the base's shards, names, metadata and companion files; returns its tensors."""
    merged = Merged(recipe, adapter)
    write_checkpoint(out, merged, like=recipe.checkpoint_dir)
    return merged


def wrong_merges(recipe: Recipe, adapter: Tensors, weights: tuple[str, ...]) -> dict[str, Tensors]:
    """Control -> weight -> the base itself, a merge at alpha x 1.01, and one whose delta is transposed."""
    base, louder = read_tensors(recipe.checkpoint_dir), Merged(scaled(recipe, alpha=ALPHA_CONTROL), adapter)
    return {
        "base": {name: np.array(base[f"{name}.weight"]) for name in weights},
        "alpha": {name: louder[f"{name}.weight"] for name in weights},
        "transposed": {name: _transposed(base[f"{name}.weight"], adapter, name, recipe.scale) for name in weights},
    }


def _transposed(base: np.ndarray, adapter: Tensors, weight: str, scale: float) -> np.ndarray:
    """What a loader makes that takes the delta's bytes in the other order."""
    delta = np.float32(scale) * (adapter[f"{weight}.lora_B"] @ adapter[f"{weight}.lora_A"])
    return (base.astype(np.float32) + delta.T.reshape(base.shape)).astype(base.dtype)
