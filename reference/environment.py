"""What a run stands on, for the manifest: versions, device, and the precision switches as read back."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from datasets import disable_progress_bars

from conformance.contract.digest import sha256_tree

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors", "tokenizers", "numpy")


def use_highest_precision() -> None:
    """Float32 products in float32: CUDA would take TF32, and kernels that differ from run to run."""
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)
    # Else every torch.empty is filled with NaN first: TRL's fused head allocates 65 MB a step, half a step's time.
    torch.utils.deterministic.fill_uninitialized_memory = False


def prepare_process() -> None:
    """What every process that records sets first. One thread by default: the bits are the same, the cores are shared."""
    use_highest_precision()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    # Progress lines are ours; the libraries' bars and notes would bury them.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()


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
