"""Faults of checkpoints, merging and generation."""

from conformance.contract.seams import Edit, one

MERGE, GENERATE = "tpu_impl.merge", "tpu_impl.generate:generate"
MERGED = f"{MERGE}:Merged.__getitem__"
SUM = "(base.astype(np.float32) + self._scale * delta)"
WRITTEN = "    write_checkpoint(out, merged, like=recipe.checkpoint_dir)\n"
NOT_ADAPTED = 'if f"{weight}.lora_A" not in self._adapter:'



RESTORED = "    self._shardings = shardings_of("  # once a trainer starts to train, from a checkpoint or anew


def _restored(changed: str) -> tuple[Edit]:
    line = f"    if self._train_steps:\n        {changed}\n"
    return one("tpu_impl.train:Trainer.jit_train_and_eval_step", RESTORED, line + RESTORED)


CHECKPOINTS = {
    "data position not restored": one(
        "tpu_impl.train:Trainer._resumed", 'self._data.set_state(self._restored_custom_metadata["data"])', "pass"
    ),
    "moments not restored": _restored("held[1].write(jax.tree.map(lambda leaf: leaf * (leaf.ndim == 0), held[1].read()))"),
    "adapter restored in bfloat16": _restored(
        "held[0].write(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(leaf.dtype), held[0].read()))"
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
EDITS = CHECKPOINTS | MERGES | GENERATIONS
