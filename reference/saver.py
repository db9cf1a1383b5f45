"""Whole checkpoints or none, and the small process without a model that the kill test kills while it saves."""

import itertools
import os
import shutil
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

PARTIAL = ".partial-"  # `get_last_checkpoint` looks for `checkpoint-<step>` alone
STATE_TENSORS = 64


def partial_of(target: Path) -> Path:
    """Where `target` is written before it is whole."""
    return target.with_name(PARTIAL + target.name)


def write_whole(target: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a folder beside `target`, forces it to the disk, and renames it: `target` is whole or absent."""
    partial = partial_of(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    for path in partial.rglob("*"):
        _sync(path)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state_of(step: int, elements: int) -> dict[str, torch.Tensor]:
    """A training state (adapter, m, v) of `elements` float32 each, drawn from `step`: what a save of that step must hold."""
    draw = np.random.Generator(np.random.Philox(key=step))
    shape = (STATE_TENSORS, -(-elements // STATE_TENSORS))
    return {name: torch.from_numpy(draw.random(shape, np.float32)) for name in ("adapter", "m", "v")}


def save_state(target: Path, state: dict[str, torch.Tensor]) -> None:
    """The files of a training checkpoint: the adapter as safetensors, the optimizer's state by torch.save."""

    def write(folder: Path) -> None:
        save_file({"adapter": state["adapter"]}, folder / "adapter_model.safetensors")
        torch.save({"m": state["m"], "v": state["v"]}, folder / "optimizer.pt")

    write_whole(target, write)


def load_state(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors") | torch.load(folder / "optimizer.pt", weights_only=True)


def call(function: Callable, *args):
    """How a saver's process runs what it is for; a planted fault puts itself around it."""
    return function(*args)


def save_forever(run: str, elements: int) -> None:
    """The saver process: step after step, until it is killed. It ends with the recorder too: one that nobody kills fills the disk."""
    torch.set_num_threads(1)
    for step in itertools.count(1):
        if not parent_process().is_alive():
            return
        save_state(Path(run) / f"checkpoint-{step}", state_of(step, elements))
