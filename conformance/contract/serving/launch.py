"""The command that starts vLLM: in a container, or from a Python environment."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.contract.serving.settings import ADAPTER_NAME, SERVED_NAME, Settings

# Nothing is fetched and nothing is reported: what is served lies on this machine.
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
MODEL, ADAPTER, CACHE = "/model", "/adapter", "/cache"  # in a container


@dataclass(frozen=True, slots=True)
class Launch:
    """`environment` is added to this process's own; `kill` ends what outlives the command itself (a container)."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    kill: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a shell takes it."""
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.environment.items()), shlex.join(self.argv)])


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of server; `launch` makes its command. `ready_s`: how long a start may take, in seconds."""

    name: str
    launch: Callable[[Settings], Launch]
    tensor_parallel: int
    dtype: str
    model_length: int
    max_sequences: int
    max_batched_tokens: int
    ready_s: int
    has_container: bool


def container_launch(
    settings: Settings, environment: Mapping[str, str], container: tuple[str, ...], flags: tuple[str, ...]
) -> Launch:
    """`docker run` with the checkpoint mounted read-only; `container` are options of docker, `flags` of vLLM."""
    name = f"parity-serve-{settings.port}"
    mounts = [(settings.checkpoint, f"{MODEL}:ro"), (settings.cache, CACHE)]
    mounts += [(settings.adapter, f"{ADAPTER}:ro")] if settings.adapter else []
    argv = ["docker", "run", "--rm", "--name", name, "--entrypoint", "vllm", *container]
    for source, target in mounts:
        argv += ["--volume", f"{source}:{target}"]
    for key, value in (QUIET | dict(environment)).items():
        argv += ["--env", f"{key}={value}"]
    argv += [settings.image, "serve", MODEL, *vllm_flags(settings, ADAPTER), *flags]
    return Launch(tuple(argv), {}, kill=("docker", "kill", name))


def python_launch(settings: Settings, environment: Mapping[str, str], flags: tuple[str, ...]) -> Launch:
    """vLLM's own server in the environment of `settings.python`."""
    argv = (settings.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(settings.checkpoint))
    return Launch((*argv, *vllm_flags(settings, str(settings.adapter)), *flags), QUIET | dict(environment))


def vllm_flags(settings: Settings, adapter: str) -> list[str]:
    """What every platform's vLLM is told; nothing is left to a default that a version may change."""
    flags = {
        "--served-model-name": SERVED_NAME, "--host": settings.host, "--port": settings.port,
        "--tensor-parallel-size": settings.tensor_parallel, "--max-model-len": settings.model_length, "--dtype": settings.dtype,
        "--kv-cache-dtype": settings.kv_dtype, "--gpu-memory-utilization": settings.memory_fraction,
        "--max-num-seqs": settings.max_sequences, "--max-num-batched-tokens": settings.max_batched_tokens, "--seed": settings.seed,
    }  # fmt: skip
    if settings.quantisation != "none":
        flags["--quantization"] = settings.quantisation
    words = [word for name, value in flags.items() for word in (name, str(value))]
    words.append("--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching")
    return words + (_adapter_flags(settings, adapter) if settings.adapter else [])


def _adapter_flags(settings: Settings, adapter: str) -> list[str]:
    """vLLM takes these largest ranks only."""
    rank = json.loads((settings.adapter / "adapter_config.json").read_text())["r"]
    largest = min(size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank)
    return ["--enable-lora", "--max-lora-rank", str(largest), "--lora-modules", f"{ADAPTER_NAME}={adapter}"]
