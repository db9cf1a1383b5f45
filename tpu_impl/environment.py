"""What a run stands on, for the manifest: versions, device, and the precision switches as read back."""

import os
import platform
import tempfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache as cache

from conformance.contract.digest import sha256_tree

LIBRARIES = (
    "jax", "jaxlib", "flax", "qwix", "google-tunix", "optax", "orbax-checkpoint", "grain", "transformers", "tokenizers", "numpy",
)  # fmt: skip

WORTH_KEEPING_S = 0.1  # JAX's 1 s is for large models: a tiny one has 14 programs that take longer, 28 that take a tenth of it


def prepare_process() -> None:
    """Float32 products in float32: a TPU would take bfloat16 by default."""
    jax.config.update("jax_default_matmul_precision", "highest")


@contextmanager
def compilation_cache():
    """A cache of compiled programs, because several trainers and models compile the same one: JAX's own folder where the
    environment names one (processes that share a program), else this process's alone."""
    with tempfile.TemporaryDirectory(prefix="tpu_impl-xla-") as own:
        before, folder = jax.config.jax_compilation_cache_dir, os.environ.get("JAX_COMPILATION_CACHE_DIR", own)
        jax.config.update("jax_compilation_cache_dir", folder)
        cache.reset_cache()  # JAX keeps the folder of the first program that it compiled
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING_S)
        try:
            yield
        finally:
            jax.config.update("jax_compilation_cache_dir", before)  # of a session around this one
            cache.reset_cache()


def environment() -> dict:
    device = jax.devices()[0]
    return {
        "versions": {name: version(name) for name in LIBRARIES},
        "device": f"{device.platform} ({platform.machine()})" if device.platform == "cpu" else device.device_kind,
        "devices": jax.device_count(),
        "matmul_precision": jax.config.jax_default_matmul_precision,
        "code_sha256": sha256_tree(Path(__file__).parent),
    }
