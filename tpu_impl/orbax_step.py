"""The adapter in one step of an Orbax checkpoint, under hub names: Tunix's CheckpointManager saves `model_params` under its paths."""

import re
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from tpu_impl.layout import lora_names

ITEM = "model_params"  # what Tunix's CheckpointManager calls the model
LORA = re.compile(r"_lora_[ab]$")


def read_adapter(step: Path) -> Tensors:
    """`<weight>.lora_A` (r, in) and `<weight>.lora_B` (out, r) of a step's folder; base weights in it are not read."""
    folder = (step / ITEM if (step / ITEM).is_dir() else step).resolve()
    checkpointer = ocp.PyTreeCheckpointer()
    try:
        saved = checkpointer.metadata(folder).item_metadata.tree
        item = jax.tree_util.tree_map_with_path(lambda path, leaf: leaf if _is_lora(path) else ocp.PLACEHOLDER, saved)
        plain = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved)
        found = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(item=item, restore_args=plain))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:  # Orbax's several ways to say so
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ContractError(f"{step}: no whole step of an Orbax checkpoint: {reason}") from error
    tensors: Tensors = {}
    for path, value in jax.tree_util.tree_flatten_with_path(found)[0]:
        if _is_lora(path):
            tensors |= _named(step, _keys(path), np.asarray(value))
    if not tensors:
        raise ContractError(f"{step}: no LoRA tensor in it (a variable whose name ends in _lora_a or _lora_b)")
    return tensors


def _keys(path) -> tuple[str, ...]:
    """Module path and variable; nnx puts a variable's array under one more key, `value`."""
    keys = tuple(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
    return keys[:-1] if keys[-1] == "value" else keys


def _is_lora(path) -> bool:
    return bool(LORA.search(_keys(path)[-1]))


def _named(step: Path, keys: tuple[str, ...], value: np.ndarray) -> Tensors:
    try:
        return {name: np.ascontiguousarray(turn(value)) for name, turn in lora_names(keys)}
    except (KeyError, IndexError, ValueError) as error:
        raise ContractError(f"{step}: {'.'.join(keys)} {list(value.shape)} is not one of Tunix's Gemma 4 projections") from error
