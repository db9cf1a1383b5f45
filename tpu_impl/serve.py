"""Serving: vLLM (tpu-inference) on a TPU v6e-8, in a container pinned by its digest.

    python -m tpu_impl.serve --checkpoint MERGED --image vllm/vllm-tpu@sha256:...

Published: `vllm/vllm-tpu:gemma4` (a tag), the hub's base model, KV cache in fp8_e5m2 (the GPU's was bfloat16), 8 to 10 minutes of
compilation at every start.
"""

import sys

from conformance.contract.serving.command import main
from conformance.contract.serving.launch import CACHE, Launch, Platform, container_launch
from conformance.contract.serving.settings import Settings

MODEL_IMPL = "vllm"  # vLLM's own Gemma 4, through torchax; left to itself, an image chooses by its version


def environment(settings: Settings) -> dict[str, str]:
    """Compiled programs stay in the mounted folder: the next start loads them. Each compilation has a line in the log: tpu-inference
    itself only says what it compiles beforehand, and `parity sweep` must see what is compiled inside a window."""
    return {"VLLM_XLA_CACHE_PATH": CACHE, "MODEL_IMPL_TYPE": MODEL_IMPL, "JAX_LOG_COMPILES": "1"}


def container(settings: Settings) -> tuple[str, ...]:
    """The devices: libtpu needs the privileged container; 16 GB of shared memory as published."""
    return ("--privileged", "--network", "host", "--shm-size", "16G")


def flags(settings: Settings) -> tuple[str, ...]:
    """As published: one item of an image or video is not split over two batches."""
    return ("--disable-chunked-mm-input",)


def launch(settings: Settings) -> Launch:
    return container_launch(settings, environment(settings), container(settings), flags(settings))


PLATFORM = Platform(
    "tpu", launch, tensor_parallel=8, dtype="bfloat16", model_length=16_384, max_sequences=256, max_batched_tokens=8192, ready_s=3600,
    has_container=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(PLATFORM))
