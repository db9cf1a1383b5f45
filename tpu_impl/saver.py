"""The small process without a model that the kill test kills while it saves, through the manager that training saves with."""

import itertools
import time
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
from flax import nnx
from tunix.sft.checkpoint_manager import CheckpointManager

PARTIAL = "*.orbax-checkpoint-tmp*"  # what Orbax calls a save that is not finished
STATE_TENSORS = 64
KEPT_CHECKPOINTS = 2


def checkpointing(save_every: int) -> ocp.CheckpointManagerOptions:
    """Orbax's options of every training run."""
    return ocp.CheckpointManagerOptions(save_interval_steps=save_every, max_to_keep=KEPT_CHECKPOINTS)


class State(nnx.Module):
    """A training state of `elements` float32 each in adapter, m and v."""

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.adapter, self.m, self.v = (nnx.LoRAParam(tensors[name]) for name in ("adapter", "m", "v"))


def state_of(step: int, elements: int) -> State:
    """Drawn from `step`: what a save of that step must hold."""
    draw = np.random.Generator(np.random.Philox(key=step))
    shape = (STATE_TENSORS, -(-elements // STATE_TENSORS))
    return State({name: draw.random(shape, np.float32) for name in ("adapter", "m", "v")})


def arrays_of(state: State) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(state, name)[...]) for name in ("adapter", "m", "v")}


def save_state(manager: CheckpointManager, step: int, state: State) -> None:
    """One save, waited for: Orbax writes in the background."""
    manager.save(step, state, save_only_lora_params=True, force=True)
    manager._checkpoint_manager.wait_until_finished()


def load_state(run: Path, elements: int) -> tuple[int, State]:
    """(step, state) of the last whole save."""
    state = state_of(0, elements)
    manager = CheckpointManager(str(run), checkpointing(1))
    step, _ = manager.maybe_restore(state, restore_only_lora_params=True)
    manager.close()
    return step, state


def time_saves(run: str, elements: int, count: int) -> list[float]:
    """Milliseconds of each of `count` saves."""
    manager, times = CheckpointManager(run, checkpointing(1)), []
    for step in range(1, count + 1):
        state, start = state_of(step, elements), time.perf_counter()
        save_state(manager, step, state)
        times.append(1e3 * (time.perf_counter() - start))
    manager.close()
    return times


def restored(run: str, elements: int) -> tuple[int, bool]:
    """(step of the last whole save, whether it restores as it was saved). A save that does not load is lost; stderr has the error."""
    try:
        step, state = load_state(Path(run), elements)
    except Exception:
        traceback.print_exc()
        return 0, False
    saved, found = arrays_of(state_of(step, elements)), arrays_of(state)
    return step, all(np.array_equal(saved[key], found[key]) for key in saved)


def call(function: Callable, *args):
    """How a saver's process runs what it is for; a planted fault puts itself around it."""
    return function(*args)


def answer(sender: Connection, function: Callable, *args) -> None:
    """What a child process runs to give its parent a function's value."""
    sender.send(function(*args))


def save_forever(run: str, elements: int) -> None:
    """The saver process: step after step, until it is killed. It ends with the recorder too: one that nobody kills fills the disk."""
    manager = CheckpointManager(run, checkpointing(1))
    for step in itertools.count(1):
        if not parent_process().is_alive():
            return
        save_state(manager, step, state_of(step, elements))
