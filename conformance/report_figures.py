"""Figures of the report as inline SVG. They draw what the checks judge, through the same functions."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conformance.compare import hidden_mask, layers, rms_error
from conformance.contract.bundle import Bundle
from conformance.contract.errors import NotRecorded
from conformance.contract.plan import Plan
from conformance.tolerances import read_tolerances
from conformance.trajectories import deviation, envelope, runs, series

SIZE_INCHES = (5.2, 4.0)  # half a page at 1200 px; on a phone one text point is about one pixel
REFERENCE, PORT, LIMIT, GRID = "#1f5fa8", "#c2571a", "#8a8f98", "#e3e5e8"
STYLE = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's font
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.edgecolor": LIMIT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "legend.frameon": False,
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # equal input gives an equal page
FLOOR = 1e-12  # below it a logarithmic axis shows rounding of the drawing only


@dataclass(frozen=True, slots=True)
class Drawing:
    """`svg` is empty when something is missing; `missing` then says what."""

    title: str
    caption: str
    svg: str = ""
    missing: str = ""


class Missing(Exception):
    """What a figure lacks, for the reader."""


def drawings(reference: Bundle | None, port: Bundle | None, plan: Plan | None) -> tuple[Drawing, ...]:
    """All figures of the report; one that can't be drawn says why."""
    factor = read_tolerances()["envelope"].value
    tail = f"Below: deviation from the reference's float64 run; the limit is {factor:g} x the spread of the reference's runs."
    depth = "rms error of the residual stream against the reference's float64 run, after each layer (0: the embedding)."
    return (
        _drawing("Training loss", f"Same rows, same start, float32. {tail}", lambda: _curves(reference, port, "loss")),
        _drawing("Gradient norm", f"Before clipping. {tail}", lambda: _curves(reference, port, "grad_norm")),
        _drawing("Error per layer, float32", f"Warm adapter: {depth}", lambda: _depth(reference, port, plan, "f32")),
        _drawing("Error per layer, bfloat16", f"Warm adapter: {depth}", lambda: _depth(reference, port, plan, "bf16")),
    )


def _drawing(title: str, caption: str, draw: Callable[[], Figure]) -> Drawing:
    try:
        with matplotlib.rc_context(STYLE | {"svg.hashsalt": title}):  # the salt keeps ids of one page apart
            return Drawing(title, caption, svg=_svg(draw()))
    except (Missing, NotRecorded) as missing:
        return Drawing(title, caption, missing=str(missing))


def _svg(figure: Figure) -> str:
    """The `<svg>` element alone: no XML head, no fixed size, so that the page decides how wide it is."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=NO_METADATA, transparent=True)
    text = file.getvalue()
    width, height = (72 * inches for inches in figure.get_size_inches())
    _, _, inner = text[text.index("<svg") :].partition(">")
    return f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {width:g} {height:g}" aria-hidden="true">{inner}'


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
    figure, (top, bottom) = _panels(2, "optimizer step")
    for bundle, color, dashes in ((reference, REFERENCE, "-"), (port, PORT, "--")):
        values = series(bundle, "f32", name)
        top.plot(values, dashes, color=color, label=bundle.stack)
        truth = series(reference, "f64", name)
        error = deviation(values, truth[: len(values)])
        bottom.plot(np.maximum(error, FLOOR), dashes, color=color, linewidth=1)
    limit = read_tolerances()["envelope"].value * envelope(reference, name)
    bottom.plot(np.maximum(limit, FLOOR), color=LIMIT, label="limit")
    _label(top, name.replace("_", " ").replace("grad ", "gradient "))
    _label(bottom, "relative deviation", log=True)
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
    figure, (axes,) = _panels(1, "layer")
    for bundle, color, dashes in ((reference, REFERENCE, "-"), (port, PORT, "--")):
        pairs = zip(_stream(bundle, precision, mask), truth, strict=True)
        errors = [max(rms_error(*pair), FLOOR) for pair in pairs]
        axes.plot(errors, dashes, marker="o", markersize=3, color=color, label=bundle.stack)
    _label(axes, "rms error", log=True)
    return figure


def _stream(bundle: Bundle, precision: str, mask: np.ndarray) -> list[np.ndarray]:
    key = f"{precision}/warm/hidden"
    if key not in bundle.arrays("logits"):
        raise Missing(f"the {bundle.stack} recorded no {key}")
    return layers(bundle, key, mask)


def _panels(rows: int, x_label: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, 1, sharex=True)))
    axes[-1].set_xlabel(x_label)
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure, axes


def _label(axes: Axes, name: str, *, log: bool = False) -> None:
    axes.set_ylabel(name)
    axes.set_yscale("log" if log else "linear")
    axes.legend(loc="best")
