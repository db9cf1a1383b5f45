"""Faults of meshes: what lies where, what is summed over devices, what a restore gives back."""

from conformance.contract.seams import Edit, one

SHARDING, OPTIMIZER = "tpu_impl.sharding", "tpu_impl.optimizer"
OWN_ROWS, PLACE_ROWS, SPEC = f"{SHARDING}:own_rows", f"{SHARDING}:place_rows", f"{SHARDING}:spec_of"
SHARDS = "mesh.shape['data'] * mesh.shape['fsdp']"
OWN = "sorted({row for (part,) in slices for row in range(rows)[part]})"
PLACED = "    _, rows = places_of("
AXES = "axes = split_axes(tensor.name, topology, mesh)"
NORM = "norm = optax.global_norm(grads)"


def _rows(new: str) -> tuple[Edit]:
    """Other rows for a process's devices, by place in the micro-batch."""
    return one(OWN_ROWS, OWN, new)


def _axes(new: str) -> tuple[Edit]:
    """Another split of a tensor than the rule's `axes`."""
    return one(SPEC, AXES, f"{AXES}\n    {new}")


ROWS = {
    # Tunix would split them by itself.
    "rows on every device": (
        Edit(f"{SHARDING}:row_sharding", "ROWS_SPEC", "PartitionSpec()"),
        Edit("tpu_impl.train:trainer_config", "data_sharding_axis=(ROWS,)", "data_sharding_axis=()"),
    ),
    "rows dealt in turn": _rows(f"{OWN[:-1]}, key=lambda row: (row % 2, row))"),
    "first rows on every shard": _rows(f"[row % (rows // ({SHARDS})) for row in {OWN}]"),
    "rows cut to what the mesh divides": one(
        PLACE_ROWS, PLACED,
        f"    whole = len(batch['input_tokens']) // ({SHARDS}) * ({SHARDS})\n"
        f"    batch = {{name: value[:whole] if np.ndim(value) else value for name, value in batch.items()}}\n{PLACED}",
    ),
}  # fmt: skip
SUMS = {
    "gradients summed over devices": one(
        f"{SHARDING}:as_annotated", "(state, nnx.get_partition_spec(state))",
        "(jax.tree.map(lambda leaf: leaf * _parts(ROWS, current_mesh()), state), nnx.get_partition_spec(state))",
    ),
    "mean of shard means": one(
        PLACE_ROWS, PLACED,
        f"    shards = np.array_split(batch['loss_weight'], {SHARDS})\n"
        "    shards = [one / max(one.sum(), 1e-9) / len(shards) for one in shards]\n"
        f"    batch = batch | {{'loss_weight': np.concatenate(shards).astype(np.float32)}}\n{PLACED}",
    ),
    "norm of a device's part": one(
        f"{OPTIMIZER}:clip_as_torch", NORM,
        f"{NORM}\n        from tpu_impl.sharding import ROWS, _parts, current_mesh\n"
        "        norm = norm / np.sqrt(_parts(ROWS, current_mesh()) if current_mesh() else 1).astype(np.float32)",
    ),
}  # fmt: skip
PLACES = {
    "adapters on every device": _axes('axes = (None, None) if ".lora_" in tensor.name else axes'),
    "rank split": _axes('axes = axes[::-1] if ".lora_" in tensor.name else axes'),
    "embedder on every device": _axes('axes = (None, None) if "embed_tokens" in tensor.name else axes'),
    "optimizer on every device": one(
        "tunix.sft.peft_trainer:PeftTrainer._shard_optimizer", "optimizer_state, optimizer_pspecs",
        "optimizer_state, jax.sharding.PartitionSpec()",
    ),
    "a new optimizer object every step": one(
        "tpu_impl.train:Trainer._step", "apply_gradients(self.optimizer.tx,",
        "apply_gradients(__import__('copy').copy(self.optimizer.tx),",
    ),
    "restored whole on every device": one(
        "tunix.sft.checkpoint_manager:CheckpointManager.maybe_restore", "nnx.get_named_sharding(optimizer_state, named_sharding.mesh)",
        "jax.tree_util.tree_map(lambda x: jax.sharding.NamedSharding(named_sharding.mesh, jax.sharding.PartitionSpec()), state)",
    ),
}  # fmt: skip
EDITS = ROWS | SUMS | PLACES
