"""What a peer's check needs and the ladder does not record: the merge in float32, as Tunix's LoRA test has it."""

import dataclasses

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_tensors, write_checkpoint
from conformance.contract.draws import loud_adapter
from tpu_impl.merge import merge
from tpu_impl.probe import plain_logits
from tpu_impl.session import Session

FLOAT32_MERGE = "merge in float32"


def record_float32_merge(session: Session, writer: BundleWriter) -> None:
    """Logits of the loud adapter merged into a float32 copy of the base and loaded again, and of the adapted model.

    In the recipe's own dtype the two differ by 0.45 without any fault: bfloat16 rounds the merged weights.
    """
    recipe, adapter = session.recipe, loud_adapter(session.recipe, session.weights)
    base, merged = (session.scratch / name for name in ("base-float32", "merged-float32"))
    tensors = read_tensors(recipe.checkpoint_dir)
    write_checkpoint(base, {name: value.astype(np.float32) for name, value in tensors.items()}, like=recipe.checkpoint_dir)
    merge(dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, checkpoint=str(base))), adapter, merged)
    writer.array("merge", "loud/merged/logits", plain_logits(session.with_base(merged), session.plan))
    writer.array("merge", "loud/unmerged/logits", plain_logits(session.adapted(adapter), session.plan))
