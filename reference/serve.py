"""Serving: vLLM on two GPUs, in a container pinned by its digest.

    python -m reference.serve --checkpoint MERGED --image vllm/vllm-openai@sha256:...

Published: `vllm/vllm-openai:latest` (a tag), the hub's base model, KV cache in bfloat16, TRITON_ATTN.
"""

import sys

from conformance.contract.serving.command import main
from conformance.contract.serving.launch import CACHE, Launch, Platform, container_launch
from conformance.contract.serving.settings import Settings


def environment(settings: Settings) -> dict[str, str]:
    """Compiled graphs and kernels stay in the mounted folder."""
    return {"VLLM_CACHE_ROOT": CACHE}


def container(settings: Settings) -> tuple[str, ...]:
    """The devices; the ranks talk through the host's shared memory."""
    return ("--gpus", str(settings.tensor_parallel), "--network", "host", "--ipc", "host")


def flags(settings: Settings) -> tuple[str, ...]:
    """The published attention kernel, instead of whatever this version chooses on this GPU."""
    return ("--attention-backend", "TRITON_ATTN")


def launch(settings: Settings) -> Launch:
    return container_launch(settings, environment(settings), container(settings), flags(settings))


PLATFORM = Platform(
    "gpu", launch, tensor_parallel=2, dtype="bfloat16", model_length=16_384, max_sequences=256, max_batched_tokens=8192, ready_s=1800,
    has_container=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(PLATFORM))
