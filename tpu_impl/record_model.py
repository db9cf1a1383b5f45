"""Records the rungs *weights*, *adapters* and *logits*."""

from dataclasses import asdict

import jax
import numpy as np
from flax import nnx

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.draws import loud_adapter
from conformance.contract.variants import write_weights
from tpu_impl.adapter import ALPHA_CONTROL, get_adapter, lora_weights, measured_scale, own_init, scaled, split_kv
from tpu_impl.model import CHECKPOINT_PRECISION, export_weights, left_out, load_checkpoint
from tpu_impl.optimizer import AdamState, part_of
from tpu_impl.probe import Probed, left_padded, plain_logits, probe
from tpu_impl.session import Session
from tpu_impl.step import named
from tpu_impl.train import Run

OWN_SEEDS = (0, 1)
PRECISIONS, STATES = ("f32", "bf16"), ("base", "warm")


def record_weights(session: Session, writer: BundleWriter) -> None:
    precision = CHECKPOINT_PRECISION[session.recipe.model.dtype]
    checkpoint = session.recipe.checkpoint_dir
    write_weights(
        writer, checkpoint, session.scratch, lambda folder: export_weights(load_checkpoint(folder, precision)),
        left_out(read_tensors(checkpoint)),
    )  # fmt: skip


def record_adapters(session: Session, writer: BundleWriter) -> None:
    record_targets(session, writer)
    record_own_init(session, writer)
    record_scale(session, writer)
    record_facts(session, writer)
    record_frozen(session, writer)


def record_targets(session: Session, writer: BundleWriter) -> None:
    model = session.attached()
    tensors, found = get_adapter(model), lora_weights(model)
    for weight in session.weights:
        if weight.name in found:
            shapes = {f"{side}_shape": list(tensors[f"{weight.name}.lora_{side.upper()}"].shape) for side in "ab"}
            writer.line("adapters", "targets", weight=weight.name, layer=weight.layer, layer_type=weight.layer_type, **shapes)


def record_own_init(session: Session, writer: BundleWriter) -> None:
    for seed in OWN_SEEDS:
        for statistics in own_init(session.attached(), session.recipe, seed):
            writer.line("adapters", "own_init", **asdict(statistics))


def record_facts(session: Session, writer: BundleWriter) -> None:
    model = session.attached()
    trainable = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))  # what two weights share counts once
    base = sum(value.size for value in export_weights(model).values())
    policies = {"optimizer_leaves": "none", "optimizer_leaves_remat": "decoder"}
    leaves = {name: optimizer_leaves(session, remat) for name, remat in policies.items()}
    writer.line("adapters", "facts", trainable_params=trainable, total_params=base + trainable, **leaves)


def record_frozen(session: Session, writer: BundleWriter) -> None:
    session.main_run.write_frozen(writer)


def record_scale(session: Session, writer: BundleWriter) -> None:
    """The recipe's scale, rank-stabilised, and the control of alpha x 1.01, measured on every weight."""
    recipe, model = session.recipe, session.base()
    split_kv(model)
    for variant in (scaled(recipe), scaled(recipe, rslora=True), scaled(recipe, alpha=ALPHA_CONTROL, rslora=False)):
        facts = {"alpha": variant.adapter.alpha, "r": variant.adapter.rank, "rslora": variant.adapter.rslora}
        for weight, measured in measured_scale(model, variant).items():
            writer.line("adapters", "scale", weight=weight, measured=measured, **facts)


def optimizer_leaves(session: Session, remat: str) -> list[str]:
    """Names of the tensors that have moments in the optimizer of a trainer that was made under this policy."""
    trainer = session.trainer(session.initial, Run(remat=remat))
    return sorted(named(trainer.model, part_of(trainer.optimizer.opt_state, AdamState).m))


def record_logits(session: Session, writer: BundleWriter) -> None:
    for precision in PRECISIONS:
        for state in STATES:
            probed = record_state(session, writer, precision, state)
        write_dtypes(session, writer, precision, probed)
        record_long(session, writer, precision)
    record_paddings(session, writer)
    record_loud(session, writer)


def record_state(session: Session, writer: BundleWriter, precision: str, state: str) -> Probed:
    probed = probe_state(session, precision, state)
    writer.array("logits", f"{precision}/{state}/logits", probed.logits_PTV)
    for stream, value in (("hidden", probed.hidden_PMSH), ("attention", probed.attention_PLSH), ("mlp", probed.mlp_PLSH)):
        writer.array("logits", f"{precision}/{state}/{stream}", value)
    if (precision, state) == ("f32", "warm"):
        largest, cap = float(np.abs(probed.logits_PTV).max()), session.plan.topology.softcap
        writer.line("logits", "softcap", cap=cap, max_abs_logit=largest, pre_cap_max_abs=probed.pre_cap_max_abs)
    return probed


def probe_state(session: Session, precision: str, state: str) -> Probed:
    probes, adapter = session.plan.probes, session.warm.adapter if state == "warm" else session.no_adapter
    return probe(session.adapted(adapter, precision), probes.ids, probes.attention, probes.positions)


def record_paddings(session: Session, writer: BundleWriter) -> None:
    """The warm float32 model on probes padded on the left."""
    probes, model = session.plan.probes, session.adapted(session.warm.adapter)
    writer.array("logits", "f32/warm.left/logits", probe(model, *left_padded(session.plan), probes.positions).logits_PTV)


def record_long(session: Session, writer: BundleWriter, precision: str) -> None:
    """The warm model on the long probe, alone and unpadded."""
    probes, model = session.plan.probes, session.adapted(session.warm.adapter, precision)
    ids_1U = probes.long[None]
    writer.array("logits", f"{precision}/long/logits", probe(model, ids_1U, np.ones_like(ids_1U), probes.positions).logits_PTV)


def record_loud(session: Session, writer: BundleWriter) -> None:
    loud = session.adapted(loud_adapter(session.recipe, session.weights))
    writer.array("logits", "f32/loud/logits", plain_logits(loud, session.plan))


def write_dtypes(session: Session, writer: BundleWriter, precision: str, probed: Probed) -> None:
    """The forward pass's streams, and those of training."""
    trainer = session.trainer(session.initial, Run(precision))
    adapter, moments = get_adapter(trainer.model), named(trainer.model, part_of(trainer.optimizer.opt_state, AdamState).m)
    streams = {name: next(iter(tensors.values())).dtype.name for name, tensors in (("adapter", adapter), ("moment", moments))}
    for stream, dtype in sorted((probed.dtypes | streams).items()):
        writer.line("logits", "dtypes", precision=precision, stream=stream, dtype=dtype)
