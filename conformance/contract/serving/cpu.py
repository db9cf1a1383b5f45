"""Serving on this machine's CPUs, for the rung *serving* at tiny size: vLLM's CPU build in a Python environment of its own.

    python -m conformance.contract.serving.cpu --checkpoint DIR
"""

import os
import shutil
import subprocess
import sys

from conformance.contract.errors import ContractError
from conformance.contract.serving.launch import Launch, Platform, python_launch
from conformance.contract.serving.settings import Settings, model_config

PYTHON = "PARITY_VLLM_PYTHON"  # `tox` sets it
IMPORT_S = 300  # torch and vLLM take 10 s to import on an idle core


def environment(settings: Settings) -> dict[str, str]:
    """Threads: the server's answers do not depend on them, and the recorders' are one too. KV cache in GiB."""
    return {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": str(settings.cache), "OMP_NUM_THREADS": "1"}


def flags(settings: Settings) -> tuple[str, ...]:
    """Eager: compiling costs more than it saves at this size. A checkpoint without vision is the text model's."""
    config, words = model_config(settings.checkpoint), ["--enforce-eager"]
    if "Gemma4ForConditionalGeneration" in config.get("architectures", []) and not config.get("vision_config"):
        words += ["--hf-overrides", '{"architectures": ["Gemma4ForCausalLM"]}']
    return tuple(words)


def launch(settings: Settings) -> Launch:
    return python_launch(settings, environment(settings), flags(settings))


def vllm_python(given: str = "") -> str:
    """The interpreter that has vLLM; `ContractError` says why there is none."""
    python = given or os.environ.get(PYTHON, "")
    if not python:
        raise ContractError(f"no vLLM: neither --python nor {PYTHON} names a Python that has it (`tox -e serving` makes one)")
    if not shutil.which(python):
        raise ContractError(f"no vLLM: {python} is no program here (`tox -e serving` makes one)")
    done = subprocess.run(
        [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"],
        capture_output=True, text=True, timeout=IMPORT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ContractError(f"no vLLM: {python} has none" + "".join(f" ({line})" for line in done.stderr.strip().splitlines()[-1:]))
    return python


PLATFORM = Platform(
    "cpu", launch, tensor_parallel=1, dtype="float32", model_length=1024, max_sequences=32, max_batched_tokens=2048, ready_s=1200,
    has_container=False,
)  # fmt: skip

if __name__ == "__main__":
    from conformance.contract.serving.command import main

    sys.exit(main(PLATFORM))
