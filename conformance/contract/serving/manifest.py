"""What was served: every setting and flag, digests of the weights, and what the server says of itself; two of them compared."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from conformance.contract.checkpoint_files import shard_names
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.serving.api import Api
from conformance.contract.serving.launch import Launch
from conformance.contract.serving.settings import Settings
from conformance.contract.whole_text import write_text

VERSION = 1
# These decide which numbers come out or how requests share the device: two servers that are compared have them in common.
DECISIVE = (
    "model_length", "dtype", "kv_dtype", "quantisation", "max_sequences", "max_batched_tokens", "prefix_caching", "seed",
    "read_back.max_model_len", "read_back.cache_dtype", "read_back.enable_prefix_caching",
)  # fmt: skip
# These belong to a platform: they may differ, and every result says how.
NAMED = ("platform", "versions.vllm", "image", "tensor_parallel", "memory_fraction")
READ_BACK = ("cache_dtype", "enable_prefix_caching", "block_size", "gpu_memory_utilization")


@dataclass(frozen=True, slots=True)
class Difference:
    setting: str
    a: str
    b: str

    @property
    def is_decisive(self) -> bool:
        return self.setting in DECISIVE

    def __str__(self) -> str:
        return f"{self.setting}: {self.a} against {self.b}"


def weight_digests(checkpoint: Path) -> dict[str, str]:
    """sha256 of every shard."""
    return {name: sha256_file(checkpoint / name) for name in shard_names(checkpoint)}


def describe(settings: Settings, launch: Launch, weights: dict[str, str]) -> dict:
    """What is known before the server is up."""
    return {
        "version": VERSION,
        "settings": settings.to_json(),
        "argv": list(launch.argv),
        "environment": dict(launch.environment),
        "weights_sha256": weights,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_back(api: Api) -> dict:
    """What the server says of itself."""
    cache = api.cache_info()
    said = {name: cache.get(name, "not said") for name in READ_BACK}
    entry = api.models()[api.model]
    said |= {"root": str(entry.get("root")), "max_model_len": str(entry.get("max_model_len"))}
    return {"versions": {"vllm": api.version()}, "read_back": said}


def write_manifest(path: Path, manifest: dict) -> None:
    write_text(path, json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def read_manifest(path: Path) -> dict:
    try:
        manifest = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ContractError(f"serving manifest {path}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION or "settings" not in manifest:
        raise ContractError(f"serving manifest {path}: not one that `parity serve` of this suite writes (version {VERSION})")
    return manifest


def flat(manifest: dict) -> dict[str, str]:
    """Setting -> value as text: the settings by their names, what was read back with its heading before the name, the command."""
    values = {name: str(value) for name, value in manifest["settings"].items()}
    values["command"] = str(Launch(tuple(manifest.get("argv", ())), manifest.get("environment", {})))
    for heading in ("versions", "read_back"):
        values |= {f"{heading}.{name}": str(value) for name, value in manifest.get(heading, {}).items()}
    return values


def differences(a: dict, b: dict) -> list[Difference]:
    """Of two flat manifests, those that decide first; ports, folders and the like are each machine's own."""
    missing = "not recorded"
    found = [Difference(name, a.get(name, missing), b.get(name, missing)) for name in (*DECISIVE, *NAMED)]
    return [one for one in found if one.a != one.b]
