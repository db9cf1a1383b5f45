"""The float64 merge that recorded merges are held to: W + scale · B·A from the files of a bundle."""

from pathlib import Path

import numpy as np

from conformance.compare import ulp, wide
from conformance.contract.checkpoint_files import read_file
from conformance.contract.kinds import block

PEFT_HEAD, PEFT_TAIL = "base_model.model.", ".weight"


def read_adapter(folder: Path) -> dict[str, np.ndarray]:
    """Adapter tensors by `<weight>.lora_A` from a PEFT folder."""
    tensors = read_file(folder / "adapter_model.safetensors")
    return {name.removeprefix(PEFT_HEAD).removesuffix(PEFT_TAIL): value for name, value in tensors.items()}


def delta(adapter: dict[str, np.ndarray], weight: str, scale: float) -> np.ndarray:
    """scale · B·A in float64, [out, in]."""
    return scale * (wide(adapter[f"{weight}.lora_B"]) @ wide(adapter[f"{weight}.lora_A"]))


def as_recorded(full: np.ndarray, weight: str, recorded: np.ndarray) -> np.ndarray:
    """`full`, or the block of it that a large model's bundle keeps."""
    return full if recorded.shape == full.shape else block(full, weight)


def unequal_share(merged: np.ndarray, truth: np.ndarray) -> float:
    """Share of elements that are not the rounding of `truth`."""
    return float(np.mean(merged != truth.astype(merged.dtype)))


def worst_ulp(merged: np.ndarray, base: np.ndarray, change: np.ndarray) -> float:
    """Largest error in ulp of max(|W|, |delta|, |W + delta|) in the merged dtype."""
    truth = wide(base) + change
    at = np.maximum(np.maximum(np.abs(wide(base)), np.abs(change)), np.abs(truth))
    return float(np.max(np.abs(wide(merged) - truth) / ulp(at, merged.dtype)))
