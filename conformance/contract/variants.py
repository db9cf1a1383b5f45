"""Variants of a checkpoint, and the rung *weights*: what a stack makes of each, given how it loads and exports."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import INDEX, SINGLE, read_tensors, write_file
from conformance.contract.digest import sha256_array, sha256_json
from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from conformance.contract.topology import PREFIX

PREFIXES = (PREFIX, "model.")  # the hub's, and that of a text-only export
Roundtrip = Callable[[Path], Tensors]  # checkpoint folder -> its tensors after checkpoint -> stack -> hub layout


def write_weights(writer: BundleWriter, checkpoint: Path, scratch: Path, roundtrip: Roundtrip, left_out: dict[str, str]) -> None:
    """Every tensor there and back, names left out with the reason, both name prefixes, and refusals of broken checkpoints."""
    for tensor, value in roundtrip(checkpoint).items():
        writer.line("weights", "tensors", name=tensor, dtype=value.dtype.name, shape=list(value.shape), sha256=sha256_array(value))
    for tensor, reason in left_out.items():
        writer.line("weights", "left_out", name=tensor, reason=reason)
    kept = {tensor: value for tensor, value in read_tensors(checkpoint).items() if tensor not in left_out}
    for prefix in PREFIXES:
        tensors = {_under(prefix, tensor): value for tensor, value in kept.items()}
        renamed = variant(checkpoint, scratch, prefix.strip("."), tensors)
        digests = {key: sha256_array(value) for key, value in roundtrip(renamed).items()}
        writer.line("weights", "prefixes", prefix=prefix, sha256=sha256_json(digests))
    for case, tensor, tensors in broken(kept):
        message = refusal(variant(checkpoint, scratch, case, tensors), roundtrip)
        writer.line("weights", "refusals", case=case, tensor=tensor, refused=bool(message), message=message)


def variant(checkpoint: Path, scratch: Path, label: str, tensors: Tensors) -> Path:
    """The checkpoint's configuration with other tensors, in one file."""
    folder = scratch / label
    folder.mkdir()
    for path in checkpoint.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and path.name != INDEX:
            shutil.copyfile(path, folder / path.name)
    write_file(folder / SINGLE, tensors, {"format": "pt"})
    return folder


def broken(tensors: Tensors) -> Iterator[tuple[str, str, Tensors]]:
    """(case, the tensor at fault, tensors): one missing, one too many, one transposed."""
    victim = f"{PREFIX}layers.1.self_attn.q_proj.weight"
    extra = f"{PREFIX}layers.1.self_attn.z_proj.weight"
    yield "missing", victim, {key: value for key, value in tensors.items() if key != victim}
    yield "extra", extra, tensors | {extra: tensors[victim]}
    yield "shape", victim, tensors | {victim: np.ascontiguousarray(tensors[victim].T)}


def refusal(folder: Path, roundtrip: Roundtrip) -> str:
    """The message with which loading `folder` is refused; empty when it loads."""
    try:
        roundtrip(folder)
    except ContractError as error:
        return str(error).replace(str(folder), folder.name)  # the scratch folder has another name in every run
    return ""


def _under(prefix: str, tensor: str) -> str:
    return tensor.replace(PREFIX, prefix) if tensor.startswith(PREFIX) else tensor
