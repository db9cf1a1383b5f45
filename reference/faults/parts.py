"""Parts of a recording that can be recorded alone: what a fault names in `records`."""

from conformance.contract.faults import Part
from reference.record_after import record_merge, record_resume
from reference.record_inputs import record_batches, record_tokens
from reference.record_model import record_scale
from reference.record_training import record_gradients, record_optimizer

PARTS: dict[str, Part] = {
    "tokens": record_tokens,
    "batches": record_batches,
    "adapters scale": record_scale,
    "gradients": record_gradients,
    "optimizer": record_optimizer,
    "checkpoint resume": lambda session, writer: record_resume(session, writer, 0.0),
    "merge": record_merge,
}

# What is about the training run itself; merging takes the clean run's adapter.
TRAINING = ("batches",)
