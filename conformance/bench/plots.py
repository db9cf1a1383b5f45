"""Figures of one or two sweeps: throughput, TTFT, TPOT and cost against rate and length, and the Pareto curve; SVG and PNG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conformance.bench.cell_report import LATENCIES, OUTPUT_RATE, CellSummary, summaries_of
from conformance.bench.intervals import Interval
from conformance.bench.measurements import Measurements
from conformance.bench.prices import PRICES, Price, cost_of, read_prices
from conformance.bench.ticks import log_ticks, plain

COLOURS, MARKERS = ("#1f5fa8", "#c2571a"), ("o", "s", "^", "D", "v", "P", "X")
STYLE = {"svg.fonttype": "none", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
GRID = {"grid.color": "#e3e5e8", "legend.frameon": False, "svg.hashsalt": "tpu-parity"}
NO_METADATA = {".svg": dict.fromkeys(("Date", "Creator")), ".png": {"Software": None}}
PALE = 0.35  # opacity
LEVELS = {"open": "rate", "closed": "concurrency"}  # mode -> what its cells' level is
SIZES_INCHES = {2: (9, 6.4), 1: (5.2, 11)}  # by the columns of panels
TTFT, TPOT = (next(one for one in LATENCIES if one.name == name) for name in ("TTFT p50", "TPOT p50"))


@dataclass(frozen=True, slots=True)
class Side:
    """One sweep as it is drawn."""

    label: str
    summaries: tuple[CellSummary, ...]
    usd_per_hour: float | None
    colour: str


@dataclass(frozen=True, slots=True)
class Panel:
    """`read`: what is drawn of a cell of a side, None where there is nothing."""

    label: str
    read: Callable[[Side, CellSummary], Interval | None]
    is_log: bool = False


def _cost(side: Side, summary: CellSummary) -> Interval | None:
    """Of a million output tokens."""
    rate = summary.interval(OUTPUT_RATE)
    return None if side.usd_per_hour is None or rate is None else cost_of(rate, side.usd_per_hour)


PANELS = (
    Panel("output tokens/s", lambda side, summary: summary.interval(OUTPUT_RATE)),
    Panel("TTFT p50 (ms)", lambda side, summary: summary.interval(TTFT), is_log=True),
    Panel("TPOT p50 (ms)", lambda side, summary: summary.interval(TPOT)),
    Panel("US dollars per million output tokens", _cost, is_log=True),
)


def draw(sweeps: Sequence[Measurements], folder: Path) -> list[Path]:
    """Writes into `folder`, which may exist; both sides in each figure. Returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE | GRID):
        return [path for name, figure in figures_of(sweeps).items() for path in _save(figure(), folder / name)]


def figures_of(
    sweeps: Sequence[Measurements], prices: Path = PRICES, columns: int = 2, names: Sequence[str] = ("A", "B")
) -> dict[str, Callable[[], Figure]]:
    """Name -> what draws it, panels in so many columns. None without sweeps. `names`: of the sides, where there are two."""
    if not sweeps:
        return {}
    known = read_prices(prices)
    given = names if len(sweeps) > 1 else ("",)
    sides = [_side(measurements, known, colour, name) for measurements, colour, name in zip(sweeps, COLOURS, given, strict=False)]
    modes = {one.cell.mode for side in sides for one in side.summaries}
    found = {f"by-{name}": partial(_panels, sides, mode, name, columns) for mode, name in LEVELS.items() if mode in modes}
    return found | {"by-length": partial(_panels, sides, None, "length", columns), "pareto": partial(_pareto, sides)}


def _side(measurements: Measurements, prices: dict[str, Price], colour: str, name: str) -> Side:
    subject = measurements.manifest.subject
    label = " ".join(filter(None, (name, subject.machine or subject.platform or "server")))
    price = prices.get(subject.machine)
    return Side(plain(label), summaries_of(measurements), price and price.usd_per_hour, colour)


def _panels(sides: list[Side], mode: str | None, name: str, columns: int = 2) -> Figure:
    """Against the level, one line a length; or (`mode` None) against the length, at a length's lowest level and at its highest rate."""
    figure = Figure(figsize=SIZES_INCHES[columns], layout="constrained")
    for axes, panel in zip(figure.subplots(len(PANELS) // columns, columns).flat, PANELS, strict=True):
        for side in sides:
            for marker, (label, cells) in zip(MARKERS * 9, _lines(side, mode, panel).items(), strict=False):
                _line(axes, side, cells, panel, f"{side.label}, {label}", marker, by_length=mode is None)
        axes.set(xlabel={"rate": "requests/s", "concurrency": "requests under way"}.get(name, "input tokens"), ylabel=panel.label)
        _axes(axes, panel)
    _legend(figure, 3 if columns > 1 else 1)
    return figure


def _axes(axes: Axes, panel: Panel) -> None:
    """Ticks at what was measured, in plain numbers."""
    if not axes.lines:
        axes.text(0.5, 0.5, "not known", ha="center", transform=axes.transAxes)
        return
    levels = sorted({float(x) for line in axes.lines for x in line.get_xdata()})
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    if panel.is_log:
        axes.set_yscale("log")
        log_ticks(axes.yaxis)


def _lines(side: Side, mode: str | None, panel: Panel) -> dict[str, list[CellSummary]]:
    """Label of a line -> its cells."""
    if mode is None:
        return _by_length(side, panel)
    lines: dict[str, list[CellSummary]] = {}
    for one in side.summaries:
        if one.cell.mode == mode:
            lines.setdefault(f"{one.cell.input_tokens} in, {one.cell.output_tokens} out, {one.cell.length}", []).append(one)
    return lines


def _by_length(side: Side, panel: Panel) -> dict[str, list[CellSummary]]:
    """Rates and cost at their peak over all cells of a length; latencies at the lowest rate."""
    lengths = sorted({one.cell.input_tokens for one in side.summaries})
    cells = [[one for one in side.summaries if one.cell.input_tokens == length and one.interval(OUTPUT_RATE)] for length in lengths]
    if panel.label in ("TTFT p50 (ms)", "TPOT p50 (ms)"):
        opens = [[one for one in some if one.cell.mode == "open"] for some in cells]
        return {"lowest rate": [min(some, key=lambda one: one.cell.level) for some in opens if some]}
    return {"peak": [max(some, key=lambda one: one.interval(OUTPUT_RATE).value) for some in cells if some]}


def _line(axes: Axes, side: Side, cells: list[CellSummary], panel: Panel, label: str, marker: str, *, by_length: bool) -> None:
    points = [(one.cell.input_tokens if by_length else one.cell.level, one, panel.read(side, one)) for one in cells]
    points = [point for point in points if point[2]]
    if points:
        axes.plot([x for x, *_ in points], [value.value for *_, value in points], color=side.colour, lw=0.9, alpha=PALE)
        axes.plot([], [], color=side.colour, lw=0.9, marker=marker, label=label)
    for x, one, value in points:
        _point(axes, x, value, side.colour, marker, one)


def _point(axes: Axes, x: float, value: Interval, colour: str, marker: str, summary: CellSummary) -> None:
    """With its interval as a bar."""
    bar = None if value.low is None else [[value.value - value.low], [value.high - value.value]]
    face = "none" if summary.saturated else colour
    alpha = PALE if summary.reasons else 1.0
    axes.errorbar([x], [value.value], yerr=bar, color=colour, marker=marker, ms=5, mfc=face, capsize=2, lw=0.9, ls="none", alpha=alpha)


def _pareto(sides: list[Side]) -> Figure:
    """What a user gets (tokens/s of one reply, 1000 / TPOT) against what the machine gives; every cell is a point."""
    figure = Figure(figsize=(6, 4.4), layout="constrained")
    axes = figure.subplots()
    for side in sides:
        for marker, mode in zip(MARKERS, ("open", "closed", "burst"), strict=False):
            cells = [one for one in side.summaries if one.cell.mode == mode and one.interval(TPOT) and one.interval(OUTPUT_RATE)]
            for one in cells:
                _point(axes, 1000 / one.interval(TPOT).value, one.interval(OUTPUT_RATE), side.colour, marker, one)
            if cells:
                axes.plot([], [], color=side.colour, marker=marker, ls="none", label=f"{side.label}, {mode}")
    axes.set(xlabel="tokens/s of one reply (1000 / TPOT p50)", ylabel="output tokens/s of the machine")
    _legend(figure)
    return figure


def _legend(figure: Figure, columns: int = 3) -> None:
    """One for all panels."""
    found = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    title = "hollow: saturated; pale: invalid or not proven; bars: 95 % over server starts"
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, title=title)


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(suffix) for suffix in NO_METADATA]
    for path in paths:
        figure.savefig(path, metadata=NO_METADATA[path.suffix], dpi=150)
    return paths
