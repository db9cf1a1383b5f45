"""Records the rungs *weights*, *adapters* and *logits*."""

from dataclasses import asdict

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.draws import loud_adapter
from conformance.contract.plan import Plan
from conformance.contract.variants import write_weights
from reference.adapter import (
    ALPHA_CONTROL,
    adapter_parameters,
    attach_adapter,
    lora_layers,
    measured_scale,
    own_init,
    scaled,
    set_adapter,
)
from reference.model import CHECKPOINT_PRECISION, export_weights, left_out, load_checkpoint
from reference.probe import Probed, left_padded, name, probe
from reference.session import Session
from reference.train import Run

OWN_SEEDS = (0, 1)


def record_weights(session: Session, writer: BundleWriter) -> None:
    precision = CHECKPOINT_PRECISION[session.recipe.model.dtype]
    checkpoint = session.recipe.checkpoint_dir
    write_weights(
        writer, checkpoint, session.scratch, lambda folder: export_weights(load_checkpoint(folder, precision)),
        left_out(read_tensors(checkpoint)),
    )  # fmt: skip


def record_adapters(session: Session, writer: BundleWriter) -> None:
    model = session.adapted()
    parameters = adapter_parameters(model)
    for weight in session.weights:
        if weight.name in lora_layers(model):
            shapes = {f"{side}_shape": list(parameters[f"{weight.name}.lora_{side.upper()}"].shape) for side in "ab"}
            writer.line("adapters", "targets", weight=weight.name, layer=weight.layer, layer_type=weight.layer_type, **shapes)
    for seed in OWN_SEEDS:
        for statistics in own_init(model, session.recipe, seed):
            writer.line("adapters", "own_init", **asdict(statistics))
    record_scale(session, writer)
    trainable = sum(value.numel() for value in model.parameters() if value.requires_grad)
    base = sum(value.size for value in export_weights(model).values())
    writer.line(
        "adapters", "facts", trainable_params=trainable, total_params=base + trainable,
        optimizer_leaves=optimizer_leaves(session, checkpointing=False),
        optimizer_leaves_remat=optimizer_leaves(session, checkpointing=True),
    )  # fmt: skip
    session.main_run.write_frozen(writer)


def record_scale(session: Session, writer: BundleWriter) -> None:
    """The recipe's scale, rank-stabilised, and the control of alpha x 1.01, measured on every weight."""
    recipe = session.recipe
    for variant in (scaled(recipe), scaled(recipe, rslora=True), scaled(recipe, alpha=ALPHA_CONTROL, rslora=False)):
        model = attach_adapter(session.base(), variant, dropout=0.0).eval()
        set_adapter(model, session.warm.adapter)
        facts = {"alpha": variant.adapter.alpha, "r": variant.adapter.rank, "rslora": variant.adapter.rslora}
        for weight, layer in lora_layers(model).items():
            writer.line("adapters", "scale", weight=weight, measured=measured_scale(layer), **facts)


def optimizer_leaves(session: Session, *, checkpointing: bool) -> list[str]:
    """Names of the tensors that the trainer's optimizer moves; a base weight among them keeps its own name."""
    trainer = session.trainer(session.initial, Run(checkpointing=checkpointing))
    names = {id(value): tensor for tensor, value in trainer.model.named_parameters()}
    names |= {id(value): tensor for tensor, value in adapter_parameters(trainer.model).items()}
    return sorted(names[id(value)] for group in trainer.create_optimizer().param_groups for value in group["params"])


def record_logits(session: Session, writer: BundleWriter) -> None:
    probes, plan = session.plan.probes, session.plan
    for precision in ("f32", "bf16", "f64"):
        for state in ("base", "warm"):
            model = session.base(precision) if state == "base" else session.adapted(session.warm.adapter, precision)
            probed = probe(model, probes.ids, probes.attention, precision, probes.positions)
            _write_probed(writer, f"{precision}/{state}", probed)
        _write_long(writer, model, plan, precision)
        if precision != "f64":
            _write_dtypes(session, writer, precision, probed)
        if precision != "bf16":
            _write_loud(session, writer, precision)
        if precision == "f32":
            largest = float(np.abs(probed.logits_PTV).max())
            writer.line(
                "logits", "softcap", cap=plan.topology.softcap, max_abs_logit=largest, pre_cap_max_abs=probed.pre_cap_max_abs
            )
            writer.array("logits", "f32/warm.left/logits", probe(model, *left_padded(plan), "f32").logits_PTV)


def _write_long(writer: BundleWriter, model, plan: Plan, precision: str) -> None:
    """The warm model's logits of the long probe, alone and unpadded."""
    ids_1U = plan.probes.long[None]
    writer.array("logits", f"{precision}/long/logits", probe(model, ids_1U, np.ones_like(ids_1U), precision).logits_PTV)


def _write_loud(session: Session, writer: BundleWriter, precision: str) -> None:
    """The loud adapter's logits; its float64 run is the floor for files that the stacks exchange."""
    model, probes = session.adapted(loud_adapter(session.recipe, session.weights), precision), session.plan.probes
    writer.array("logits", f"{precision}/loud/logits", probe(model, probes.ids, probes.attention, precision).logits_PTV)


def _write_probed(writer: BundleWriter, key: str, probed: Probed) -> None:
    writer.array("logits", f"{key}/logits", probed.logits_PTV)
    for stream, layers in (("hidden", probed.hidden_PSH), ("attention", probed.attention_PSH), ("mlp", probed.mlp_PSH)):
        writer.array("logits", f"{key}/{stream}", np.stack(layers, axis=1))


def _write_dtypes(session: Session, writer: BundleWriter, precision: str, probed: Probed) -> None:
    """The forward pass's streams, and those of training: PEFT keeps adapters and so AdamW's moments in float32."""
    trainer = session.trainer(session.initial, Run(precision))
    adapter = next(iter(adapter_parameters(trainer.model).values()))
    adapter.grad = adapter.detach().clone()
    optimizer = trainer.create_optimizer()
    optimizer.step()
    streams = probed.dtypes | {"adapter": name(adapter.dtype), "moment": name(optimizer.state[adapter]["exp_avg"].dtype)}
    for stream, dtype in sorted(streams.items()):
        writer.line("logits", "dtypes", precision=precision, stream=stream, dtype=dtype)
