"""Records the rungs *weights*, *adapters* and *logits*."""

from dataclasses import asdict

import numpy as np

from conformance.contract.bundle import BundleWriter
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.draws import loud_adapter
from conformance.contract.variants import write_weights
from tpu_impl.adapter import ALPHA_CONTROL, get_adapter, lora_weights, measured_scale, own_init, scaled, set_remat, split_kv
from tpu_impl.model import CHECKPOINT_PRECISION, export_weights, left_out, load_checkpoint
from tpu_impl.optimizer import AdamState, part_of
from tpu_impl.probe import Probed, left_padded, plain_logits, probe
from tpu_impl.session import Session
from tpu_impl.step import named
from tpu_impl.train import Run, make_trainer

OWN_SEEDS = (0, 1)


def record_weights(session: Session, writer: BundleWriter) -> None:
    precision = CHECKPOINT_PRECISION[session.recipe.model.dtype]
    checkpoint = session.recipe.checkpoint_dir
    write_weights(
        writer, checkpoint, session.scratch, lambda folder: export_weights(load_checkpoint(folder, precision)),
        left_out(read_tensors(checkpoint)),
    )  # fmt: skip


def record_adapters(session: Session, writer: BundleWriter) -> None:
    model = session.adapted(session.initial)
    tensors, found = get_adapter(model), lora_weights(model)
    for weight in session.weights:
        if weight.name in found:
            shapes = {f"{side}_shape": list(tensors[f"{weight.name}.lora_{side.upper()}"].shape) for side in "ab"}
            writer.line("adapters", "targets", weight=weight.name, layer=weight.layer, layer_type=weight.layer_type, **shapes)
    for seed in OWN_SEEDS:
        for statistics in own_init(model, session.recipe, seed):
            writer.line("adapters", "own_init", **asdict(statistics))
    _record_scale(session, writer)
    trainable = sum(value.size for value in tensors.values())
    base = sum(value.size for value in export_weights(model).values())
    writer.line(
        "adapters", "facts", trainable_params=trainable, total_params=base + trainable,
        optimizer_leaves=optimizer_leaves(session, "none"), optimizer_leaves_remat=optimizer_leaves(session, "decoder"),
    )  # fmt: skip
    session.main_run.write_frozen(writer)


def _record_scale(session: Session, writer: BundleWriter) -> None:
    """The recipe's scale, rank-stabilised, and the control of alpha x 1.01, measured on every weight."""
    recipe, model = session.recipe, session.base()
    split_kv(model)
    for variant in (scaled(recipe), scaled(recipe, rslora=True), scaled(recipe, alpha=ALPHA_CONTROL, rslora=False)):
        facts = {"alpha": variant.adapter.alpha, "r": variant.adapter.rank, "rslora": variant.adapter.rslora}
        for weight, measured in measured_scale(model, variant).items():
            writer.line("adapters", "scale", weight=weight, measured=measured, **facts)


def optimizer_leaves(session: Session, remat: str) -> list[str]:
    """Names of the tensors that have moments in the trainer's optimizer."""
    model = session.adapted(session.initial)
    set_remat(model, remat)
    trainer = make_trainer(model, session.plan, Run())
    moments = part_of(trainer.optimizer.opt_state, AdamState).m
    set_remat(model, "none")
    return sorted(named(model, moments))


def record_logits(session: Session, writer: BundleWriter) -> None:
    probes = session.plan.probes
    for precision in ("f32", "bf16"):
        for state, adapter in (("base", session.no_adapter), ("warm", session.warm.adapter)):
            probed = probe(session.adapted(adapter, precision), probes.ids, probes.attention, probes.positions)
            _write_probed(writer, f"{precision}/{state}", probed)
        _write_dtypes(session, writer, precision, probed)
        if precision == "f32":
            _write_variants(session, writer, probed)


def _write_probed(writer: BundleWriter, key: str, probed: Probed) -> None:
    writer.array("logits", f"{key}/logits", probed.logits_PTV)
    for stream, value in (("hidden", probed.hidden_PMSH), ("attention", probed.attention_PLSH), ("mlp", probed.mlp_PLSH)):
        writer.array("logits", f"{key}/{stream}", value)


def _write_variants(session: Session, writer: BundleWriter, warm: Probed) -> None:
    """The float32 model: softcap, left padding, probe 0 alone and unpadded, loud adapter."""
    probes, model = session.plan.probes, session.adapted(session.warm.adapter)
    largest = float(np.abs(warm.logits_PTV).max())
    cap = session.plan.topology.softcap
    writer.line("logits", "softcap", cap=cap, max_abs_logit=largest, pre_cap_max_abs=warm.pre_cap_max_abs)
    writer.array("logits", "f32/warm.left/logits", probe(model, *left_padded(session.plan), probes.positions).logits_PTV)
    length = int(probes.attention[0].sum())
    alone = probe(model, probes.ids[:1, :length], probes.attention[:1, :length], probes.positions)
    writer.array("logits", "f32/warm.none/logits", alone.logits_PTV)
    loud = session.adapted(loud_adapter(session.recipe, session.weights))
    writer.array("logits", "f32/loud/logits", plain_logits(loud, session.plan))


def _write_dtypes(session: Session, writer: BundleWriter, precision: str, probed: Probed) -> None:
    """The forward pass's streams, and those of training."""
    trainer = session.trainer(session.initial, Run(precision))
    adapter, moments = get_adapter(trainer.model), named(trainer.model, part_of(trainer.optimizer.opt_state, AdamState).m)
    streams = {name: next(iter(tensors.values())).dtype.name for name, tensors in (("adapter", adapter), ("moment", moments))}
    for stream, dtype in sorted((probed.dtypes | streams).items()):
        writer.line("logits", "dtypes", precision=precision, stream=stream, dtype=dtype)
