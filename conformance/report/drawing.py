"""Figures: drawn when they are wanted, as inline SVG for a page or as a PDF file; one that can't be drawn says what it lacks."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conformance.bench.ticks import log_ticks
from conformance.contract.errors import NotRecorded

SIZE_INCHES = (5.2, 4.0)  # half a page at 1200 px; on a phone one text point is about one pixel
REFERENCE, PORT, LIMIT, GRID = "#1f5fa8", "#c2571a", "#8a8f98", "#e3e5e8"
STYLE = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's font
    "pdf.fonttype": 42,  # text stays text there too
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
NO_PDF_METADATA = dict.fromkeys(("CreationDate", "Creator", "Producer"))


@dataclass(frozen=True, slots=True)
class Plot:
    """`name`: of its file; `draw` raises `Missing` or `NotRecorded` when it lacks something."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Drawing:
    """`svg` is empty when something is missing; `missing` then says what."""

    title: str
    caption: str
    svg: str = ""
    missing: str = ""


class Missing(Exception):
    """What a figure lacks, for the reader."""


def svg_of(plot: Plot) -> Drawing:
    try:
        with matplotlib.rc_context(STYLE | {"svg.hashsalt": plot.name}):  # the salt keeps ids of one page apart
            return Drawing(plot.title, plot.caption, svg=_svg(plot.draw()))
    except (Missing, NotRecorded) as missing:
        return Drawing(plot.title, plot.caption, missing=str(missing))


def write_pdf(plot: Plot, folder: Path) -> str:
    """FOLDER/NAME.pdf; what is missing where it can't be drawn, and then there is no file."""
    try:
        with matplotlib.rc_context(STYLE):
            plot.draw().savefig(folder / f"{plot.name}.pdf", metadata=NO_PDF_METADATA)
    except (Missing, NotRecorded) as missing:
        return str(missing)
    return ""


def panels(rows: int, x_label: str) -> tuple[Figure, list[Axes]]:
    """Of whole numbers, such as steps, along x."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, 1, sharex=True)))
    axes[-1].set_xlabel(x_label)
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure, axes


def label(axes: Axes, name: str) -> None:
    """On a logarithmic scale: nothing is rescaled, and both ends of a curve can be read."""
    axes.set_ylabel(name)
    axes.set_yscale("log")
    log_ticks(axes.yaxis)
    axes.legend(loc="best")


def _svg(figure: Figure) -> str:
    """The `<svg>` element alone: no XML head, no fixed size, so that the page decides how wide it is."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=NO_METADATA, transparent=True)
    text = file.getvalue()
    width, height = (72 * inches for inches in figure.get_size_inches())
    _, _, inner = text[text.index("<svg") :].partition(">")
    return f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {width:g} {height:g}" aria-hidden="true">{inner}'
