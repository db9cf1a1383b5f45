"""Faults of checkpoints, savers, merging, generation, and of reading the peer's files."""

from conformance.contract.seams import Edit, one

MERGE, GENERATE = "tpu_impl.merge", "tpu_impl.generate:generate"
MERGED = f"{MERGE}:Merged.__getitem__"
SUM = "(base.astype(np.float32) + self._scale * delta)"
WRITTEN = "    write_checkpoint(out, merged, like=recipe.checkpoint_dir)\n"
NOT_ADAPTED = 'if f"{weight}.lora_A" not in self._adapter:'

SAVED = "    manager.save(step, state,"
OPENED = "    manager = CheckpointManager("
LOADER, VALUES = "tpu_impl.adapter:load_adapter", "value for name, value in tensors.items()"
RESTORED = "    self._shardings = shardings_of("  # once a trainer starts to train, from a checkpoint or anew


def _restored(changed: str) -> tuple[Edit]:
    line = f"    if self._train_steps:\n        {changed}\n"
    return one("tpu_impl.train:Trainer.jit_train_and_eval_step", RESTORED, line + RESTORED)


def _read(changed: str) -> tuple[Edit]:
    """Other tensors of an adapter's folder, by their names in it."""
    return one(LOADER, VALUES, changed)


CHECKPOINTS = {
    "data position not restored": one(
        "tpu_impl.train:Trainer._resumed", 'self._data.set_state(self._restored_custom_metadata["data"])', "pass"
    ),
    "moments not restored": _restored("held[1].write(jax.tree.map(lambda leaf: leaf * (leaf.ndim == 0), held[1].read()))"),
    "adapter restored in bfloat16": _restored(
        "held[0].write(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(leaf.dtype), held[0].read()))"
    ),
}  # fmt: skip
SAVERS = {
    "old save removed first": one(
        "tpu_impl.saver:save_state", SAVED,
        "    for old in manager._checkpoint_manager.all_steps():\n        manager._checkpoint_manager.delete(old)\n" + SAVED,
    ),
    "unfinished step restored": one(
        "tpu_impl.saver:load_state", OPENED,
        f"    for path in run.glob(PARTIAL):\n        path.rename(run / path.name.split('.')[0])\n{OPENED}",
    ),
}  # fmt: skip
MERGES = {
    "delta rounded": one(MERGED, "self._scale * delta)", "(self._scale * delta).astype(base.dtype).astype(np.float32))"),
    "merge scale times": one(MERGED, "self._scale * delta", "np.float32(VALUE) * self._scale * delta"),
    "merge without scale": one(MERGED, "self._scale * delta", "delta"),
    "delta transposed": one(MERGED, "self._scale * delta", "self._scale * delta.T.reshape(base.shape)"),
    "a weight not merged": one(MERGED, NOT_ADAPTED, NOT_ADAPTED.replace(":", ' or ".layers.VALUE.mlp.up_proj" in weight:')),
    "not merged": one(MERGED, NOT_ADAPTED, "if True:"),
    "merge truncated": one(MERGED, f"{SUM}.astype(base.dtype)", f"({SUM}.view(np.uint32) >> 16).astype(np.uint16).view(base.dtype)"),
    "untouched through float16": one(MERGED, "return base\n", "return base.astype(np.float16).astype(base.dtype)\n"),
    "no metadata": one(
        f"{MERGE}:merge", WRITTEN,
        f"{WRITTEN}    from conformance.contract.checkpoint_files import read_file, write_file\n"
        "    for shard in out.glob('*.safetensors'):\n        write_file(shard, read_file(shard), {})\n",
    ),
}  # fmt: skip
GENERATIONS = {
    "one eos ends": one(GENERATE, "ended(ids, plan)", 'ended(ids, type("First", (), {"eos_ids": plan.eos_ids[:1]}))'),
    "left padding seen": one(
        GENERATE, "attended_GL[:, None] & (steps_L <= np.arange(prompt)",
        "(attended_GL[:, None] | True) & (steps_L <= np.arange(prompt)",
    ),
    "written token seen late": one(GENERATE, "(steps_L <= at)", "(steps_L < at)"),
}  # fmt: skip
EXCHANGES = {
    "peer's B transposed": _read(f'value.T.reshape(value.shape) if ".lora_B" in name else {VALUES}'),
    "peer's B times": _read(f'np.float32(VALUE) * value if ".lora_B" in name else {VALUES}'),
    "peer's layer 0 from 1": _read('tensors[name.replace(".layers.0.", ".layers.1.")] for name in tensors'),
    "peer's names match nothing": one(LOADER, "set_adapter(model, {", "set_adapter(model, get_adapter(model) or {"),
    "base kept for the peer's merge": one(
        "tpu_impl.record_after:record_read_files", "peer.folder(merged_folder)", "session.recipe.checkpoint_dir"
    ),
    "forced places shifted": one("tpu_impl.generate:forced", "len(prompt) - 1 for", "len(prompt) - 1 + VALUE for"),
}
EDITS = CHECKPOINTS | SAVERS | MERGES | GENERATIONS | EXCHANGES
