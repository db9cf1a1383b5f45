"""What a run stands on, for the manifest: versions, device, and the precision switches as read back."""

import platform
from importlib.metadata import version
from pathlib import Path

import torch

from conformance.contract.digest import sha256_tree

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors", "tokenizers", "numpy")


def use_highest_precision() -> None:
    """Float32 products in float32: CUDA would take TF32, and kernels that differ from run to run."""
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)
    # Else every torch.empty is filled with NaN first: TRL's fused head allocates 65 MB a step, half a step's time.
    torch.utils.deterministic.fill_uninitialized_memory = False


def environment() -> dict:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu ({platform.machine()})"
    return {
        "versions": {name: version(name) for name in LIBRARIES},
        "device": device,
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "code_sha256": sha256_tree(Path(__file__).parent),
    }
