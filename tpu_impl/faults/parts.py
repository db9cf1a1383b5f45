"""Parts of a recording that can be recorded alone: what a fault names in `records`."""

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.faults import Part
from conformance.contract.run_record import DEFAULT_DROPOUT
from tpu_impl.record_after import record_choices, record_merged, record_merged_logits, record_resume
from tpu_impl.record_inputs import record_consumed, record_padding, record_tokens, record_variants
from tpu_impl.record_model import (
    probe_state,
    record_facts,
    record_frozen,
    record_long,
    record_own_init,
    record_paddings,
    record_scale,
    record_state,
    record_targets,
    record_weights,
    write_dtypes,
)
from tpu_impl.record_training import (
    members,
    record_cold,
    record_main,
    record_member,
    record_one_step,
    record_optimizer,
    record_orders,
    record_remat,
    record_warm,
)
from tpu_impl.session import Session


def _dropout(session: Session, writer: BundleWriter) -> None:
    for name in members(session):
        if name.startswith("dropout-"):
            record_member(session, writer, name)


def _dtypes(session: Session, writer: BundleWriter, precision: str) -> None:
    write_dtypes(session, writer, precision, probe_state(session, precision, "warm"))


PARTS: dict[str, Part] = {
    "tokens": record_tokens,
    "batches consumed": record_consumed,
    "batches variants": record_variants,
    "batches padding": record_padding,
    "weights": record_weights,
    "adapters targets": record_targets,
    "adapters init": record_own_init,
    "adapters scale": record_scale,
    "adapters facts": record_facts,
    "adapters frozen": record_frozen,
    "logits f32 base": lambda session, writer: record_state(session, writer, "f32", "base"),
    "logits f32 warm": lambda session, writer: record_state(session, writer, "f32", "warm"),
    "logits bf16 base": lambda session, writer: record_state(session, writer, "bf16", "base"),
    "logits bf16 warm": lambda session, writer: record_state(session, writer, "bf16", "warm"),
    "logits f32 dtypes": lambda session, writer: _dtypes(session, writer, "f32"),
    "logits bf16 dtypes": lambda session, writer: _dtypes(session, writer, "bf16"),
    "logits f32 long": lambda session, writer: record_long(session, writer, "f32"),
    "logits bf16 long": lambda session, writer: record_long(session, writer, "bf16"),
    "logits paddings": record_paddings,
    "gradients warm": record_warm,
    "gradients orders": record_orders,
    "gradients cold": record_cold,
    "gradients remat": lambda session, writer: record_remat(session, writer, "ours"),
    "optimizer": record_optimizer,
    "one_step": record_one_step,
    "trajectory f32": record_main,
    "trajectory bf16": lambda session, writer: record_member(session, writer, "bf16"),
    "trajectory dropout": _dropout,
    "checkpoint resume": lambda session, writer: record_resume(session, writer, 0.0),
    "checkpoint resume dropout": lambda session, writer: record_resume(session, writer, DEFAULT_DROPOUT),
    "merge trained": lambda session, writer: record_merged(session, writer, "trained"),
    "merge loud": lambda session, writer: record_merged(session, writer, "loud"),
    "merge loud logits": lambda session, writer: record_merged_logits(session, writer, "loud"),
    "generation f32": lambda session, writer: record_choices(session, writer, "f32"),
    "generation bf16": lambda session, writer: record_choices(session, writer, "bf16"),
}

# What is about the training run itself; merging and generation take the clean run's adapter.
TRAINING = ("batches consumed", "adapters frozen", "trajectory f32")
