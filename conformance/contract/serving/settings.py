"""What a server is started with, in the same words on every platform, and what is refused before anything starts."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from conformance.contract.checkpoint_files import shard_names
from conformance.contract.errors import ContractError

DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
SERVED_NAME = "merged"  # by which requests name the model
ADAPTER_NAME = "adapter"  # and an adapter that is served beside it


@dataclass(frozen=True, slots=True)
class Settings:
    """`checkpoint` and `adapter` are local folders; `memory_fraction` is of the device's memory (HBM), for weights and KV cache.

    `image` is a container by digest, `python` an interpreter that has vLLM; a platform uses one of them. `cache` keeps compiled
    programs from one start to the next. Lengths and batches are in tokens and sequences.
    """

    platform: str
    checkpoint: Path
    tensor_parallel: int
    model_length: int
    dtype: str
    kv_dtype: str
    quantisation: str
    memory_fraction: float
    max_sequences: int
    max_batched_tokens: int
    prefix_caching: bool
    seed: int
    host: str
    port: int
    cache: Path
    image: str = ""
    python: str = ""
    adapter: Path | None = None

    def to_json(self) -> dict:
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


def check_checkpoint(given: str | Path) -> Path:
    """The folder of a whole local checkpoint; a hub's name is refused."""
    folder = Path(given)
    if not folder.is_dir():
        raise ContractError(
            f"checkpoint {str(given)!r} is no folder here; allowed is a local folder with a merged checkpoint: "
            "a hub's name would serve the base model"
        )
    if not (folder / "config.json").is_file():
        raise ContractError(f"checkpoint {folder}: no config.json in it")
    shard_names(folder)
    return folder.resolve()


def check_image(image: str, platform: str) -> str:
    """A container image that cannot change under its name."""
    if not image:
        raise ContractError(f"platform {platform} is served from a container: give --image NAME@sha256:DIGEST")
    if not DIGEST.fullmatch(image):
        raise ContractError(
            f"image {image!r} is not pinned: a tag names another image tomorrow; allowed is NAME@sha256:DIGEST (64 hex digits), "
            f"as `docker image inspect --format '{{{{index .RepoDigests 0}}}}' {image.partition('@')[0]}` prints it"
        )
    return image


def model_config(checkpoint: Path) -> dict:
    return json.loads((checkpoint / "config.json").read_text())
