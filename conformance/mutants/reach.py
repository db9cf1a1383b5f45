"""Which parts of a recording a module's mutant can change; only those are recorded anew. A module that is not named: all."""

# First words of the names of parts.
RUNS = ("batches consumed", "adapters frozen", "trajectory", "checkpoint")
REACH: dict[str, tuple[str, ...]] = {
    # Rows, micro-batches, positions: what is trained on, and the positions of generation.
    "tpu_impl.data": ("tokens", "batches", "gradients", "one_step", *RUNS, "generation"),
    "tpu_impl.generate": ("generation",),
    "tpu_impl.merge": ("merge", "generation"),
    "tpu_impl.optimizer": ("adapters facts", "logits f32 dtypes", "logits bf16 dtypes", "optimizer", "one_step", *RUNS),
    "tpu_impl.probe": ("logits", "merge"),
    "tpu_impl.step": ("batches padding", "gradients", "optimizer", "one_step", *RUNS),
    "tpu_impl.train": ("adapters facts", "logits f32 dtypes", "logits bf16 dtypes", *RUNS),
    # The model and its adapter: everything but what comes before a model.
    **{f"tpu_impl.{name}": ("batches", "weights", "adapters", "logits", "gradients", "one_step", *RUNS, "merge", "generation")
       for name in ("adapter", "layout", "lora", "model", "taps")},
}  # fmt: skip
# Runs with dropout repeat the main run's code but for the masks: only for modules that have to do with masks.
DROPOUT = ("tpu_impl.adapter", "tpu_impl.data", "tpu_impl.lora", "tpu_impl.session", "tpu_impl.step", "tpu_impl.train")


def reached(module: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `parts` that a mutant of `module` can change, in the order given."""
    found = [part for part in parts if module in DROPOUT or not part.endswith("dropout")]
    return tuple(part for part in found if module not in REACH or part.startswith(REACH[module]))
