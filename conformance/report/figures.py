"""Figures of the proof. They draw what the checks judge, through the same functions."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from conformance.compare import hidden_mask, layers, rms_error
from conformance.contract.bundle import Bundle
from conformance.contract.plan import Plan
from conformance.report.drawing import LIMIT, PORT, REFERENCE, Missing, Plot, label, panels
from conformance.tolerances import read_tolerances
from conformance.trajectories import deviation, envelope, runs, series

FLOOR = 1e-12  # below it a logarithmic axis shows rounding of the drawing only


def proof_plots(reference: Bundle | None, port: Bundle | None, plan: Plan | None) -> tuple[Plot, ...]:
    factor = read_tolerances()["envelope"].value
    tail = f"Below: deviation from the reference's float64 run; the limit is {factor:g} x the spread of the reference's runs."
    depth = "Warm adapter: rms error of the residual stream against the reference's float64 run, after each layer (0: the embedding)."
    curves, layer = partial(_curves, reference, port), partial(_depth, reference, port, plan)
    return (
        Plot("loss", "Training loss", f"Same rows, same start, float32. {tail}", partial(curves, "loss")),
        Plot("gradient-norm", "Gradient norm", f"Before clipping. {tail}", partial(curves, "grad_norm")),
        Plot("layers-float32", "Error per layer, float32", depth, partial(layer, "f32")),
        Plot("layers-bfloat16", "Error per layer, bfloat16", depth, partial(layer, "bf16")),
    )


def _bundles(reference: Bundle | None, port: Bundle | None, rung: str) -> tuple[Bundle, Bundle]:
    for stack, bundle in (("reference", reference), ("port", port)):
        if bundle is None:
            raise Missing(f"no bundle of the {stack}")
        if not bundle.has(rung):
            raise Missing(f"the {stack} recorded no {rung}")
    return reference, port


def _curves(reference: Bundle | None, port: Bundle | None, name: str) -> Figure:
    """Both stacks' curve on top, each one's deviation from float64 with the limit below."""
    reference, port = _bundles(reference, port, "trajectory")
    _need_runs(reference, port)
    figure, (top, bottom) = panels(2, "optimizer step")
    for bundle, color, dashes in ((reference, REFERENCE, "-"), (port, PORT, "--")):
        values = series(bundle, "f32", name)
        top.plot(values, dashes, color=color, label=bundle.stack)
        truth = series(reference, "f64", name)
        error = deviation(values, truth[: len(values)])
        bottom.plot(np.maximum(error, FLOOR), dashes, color=color, linewidth=1)
    limit = read_tolerances()["envelope"].value * envelope(reference, name)
    bottom.plot(np.maximum(limit, FLOOR), color=LIMIT, label="limit")
    label(top, name.replace("_", " ").replace("grad ", "gradient "))
    label(bottom, "relative deviation")
    return figure


def _need_runs(reference: Bundle, port: Bundle) -> None:
    for bundle, needed in ((reference, ("f32", "f64", "perturbed-")), (port, ("f32",))):
        for run in needed:
            if not runs(bundle, run):
                raise Missing(f"the {bundle.stack} recorded no {run.rstrip('-')} run")
    lengths = len(series(reference, "f64", "loss")), len(series(port, "f32", "loss"))
    if lengths[1] > lengths[0]:
        raise Missing(f"the port ran {lengths[1]} steps, the float64 run has {lengths[0]}")


def _depth(reference: Bundle | None, port: Bundle | None, plan: Plan | None, precision: str) -> Figure:
    """rms error per layer of both stacks."""
    reference, port = _bundles(reference, port, "logits")
    if plan is None:
        raise Missing("the recipe's rows or checkpoint cannot be read here, so the padding of the probes is unknown")
    mask = hidden_mask(plan)
    truth = _stream(reference, "f64", mask)
    figure, (axes,) = panels(1, "layer")
    for bundle, color, dashes in ((reference, REFERENCE, "-"), (port, PORT, "--")):
        pairs = zip(_stream(bundle, precision, mask), truth, strict=True)
        errors = [max(rms_error(*pair), FLOOR) for pair in pairs]
        axes.plot(errors, dashes, marker="o", markersize=3, color=color, label=bundle.stack)
    label(axes, "rms error")
    return figure


def _stream(bundle: Bundle, precision: str, mask: np.ndarray) -> list[np.ndarray]:
    key = f"{precision}/warm/hidden"
    if key not in bundle.arrays("logits"):
        raise Missing(f"the {bundle.stack} recorded no {key}")
    return layers(bundle, key, mask)
