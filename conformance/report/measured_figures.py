"""Figures of claims and measurements, drawn from the facts that the report states, and from the sweeps through their own plots."""

from collections.abc import Iterator
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conformance.bench.ticks import log_ticks, plain
from conformance.gate.values import LOWER_IS_BETTER, SERVING
from conformance.report.claims import ClaimFacts, Claims
from conformance.report.drawing import LIMIT, PORT, REFERENCE, SIZE_INCHES, Missing, Plot, label, panels
from conformance.report.measured import Advantage, Measured
from conformance.report.names import METRICS

REPORTABLE, WITHHELD, LIGHT = "#19703f", "#5b6470", "#b3261e"
ROW_INCHES, FRAME_INCHES = 0.34, 1.3
CELL_INCHES = 0.17
NARROWEST = (0.8, 1.25)  # of an axis of ratios
COLOURS = {"reference": (REFERENCE, "-"), "port": (PORT, "--")}
SERVING_PLOTS = {
    "by-rate": ("Serving against requests/s", "Open loop: arrivals at a rate, until a length is saturated."),
    "by-concurrency": ("Serving against concurrency", "Closed loop: so many requests under way."),
    "by-length": ("Serving against input length", "Rates and cost at the peak of a length, latencies at its lowest rate."),
    "pareto": ("What a user gets against what the machine gives", "Every cell is a point."),
}


def claim_plots(claims: Claims | None) -> Iterator[Plot]:
    if claims and claims.claims:
        about = (
            "Ratios on a logarithmic scale. Diamond: as stated. Dot and bar: measured, with its interval; tall mark: the bound "
            "that is held against what is stated. Cross, or arrow where it is farther right: the port's machine at its peak (speed "
            "of light). Grey: withheld."
        )
        yield Plot("claims", "Claims", about, partial(_forest, claims.claims))


def training_plots(measured: Measured) -> Iterator[Plot]:
    if measured.trainings:
        about = "Every whole launch that was timed, as it was: nothing is averaged or rescaled."
        yield Plot("timed-loss", "Loss of the timed launches", about, partial(_timed, measured, "loss"))
        yield Plot("timed-gradient-norm", "Gradient norm of the timed launches", about, partial(_timed, measured, "gradient_norm"))


def advantage_plots(advantages: tuple[Advantage, ...]) -> Iterator[Plot]:
    """One a metric."""
    for metric in SERVING:
        found = [one for one in advantages if one.metric == metric]
        if found:
            better = "lower" if metric in LOWER_IS_BETTER else "higher"
            about = f"Right of 1 the port is better ({better} {METRICS[metric]}). Bars: 95 % over server starts. No dot: withheld."
            name = f"advantage-{metric.replace('_', '-')}"
            yield Plot(name, f"Port's relative advantage, {METRICS[metric]}", about, partial(_advantages, found))


def serving_plots(measured: Measured) -> Iterator[Plot]:
    if measured.sweeps:
        from conformance.bench.plots import figures_of  # needs the extra `serving`

        names = [stack or f"sweep {number}" for number, (stack, _) in enumerate(measured.sweeps, 1)]
        for name, draw in figures_of([one for _, one in measured.sweeps], measured.prices, 1, names).items():
            yield Plot(name, *SERVING_PLOTS[name], draw)


def _timed(measured: Measured, name: str) -> Figure:
    figure, (axes,) = panels(1, "optimizer step")
    for stack, one in measured.trainings:
        for number, launch in enumerate(one.whole):
            values = [getattr(step, name) for step in one.steps(launch.number)]
            axes.plot(values, COLOURS[stack][1], color=COLOURS[stack][0], lw=0.9, label="" if number else stack)
    if not axes.lines:
        raise Missing("no whole launch")
    label(axes, name.replace("_", " "))
    return figure


def _forest(claims: tuple[ClaimFacts, ...]) -> Figure:
    figure, axes = _rows([one.name for one in claims], ROW_INCHES)
    for row, claim in enumerate(claims):
        colour = REPORTABLE if claim.verdict == "REPORTABLE" else WITHHELD
        axes.plot([claim.stated], [row], "D", ms=4, mfc="none", color=LIMIT)
        above = dict(xytext=(0, 5), textcoords="offset points", ha="center", fontsize=6, color=LIMIT)
        axes.annotate(f"{claim.stated:g}", (claim.stated, row), **above)
        if claim.value is not None:
            _interval(axes, row, (claim.value, claim.low, claim.high), colour)
            axes.plot([claim.bound], [row], marker="|", ms=11, mew=1.2, ls="none", color=colour)
    _ratio_axis(axes, "ratio")
    _mark_fastest(axes, claims)
    return figure


def _mark_fastest(axes: Axes, claims: tuple[ClaimFacts, ...]) -> None:
    """A cross; an arrow at the edge where it is far beyond everything else."""
    edge = axes.get_xlim()[1]
    axes.set_xlim(right=edge)
    for row, claim in enumerate(claims):
        if claim.fastest is not None:
            inside = claim.fastest < edge
            axes.plot([min(claim.fastest, edge)], [row], "x" if inside else ">", ms=5, color=LIGHT, clip_on=False)
            beside = dict(xytext=(-5, 3), textcoords="offset points", ha="right", fontsize=6, color=LIGHT)
            axes.annotate(f"{claim.fastest:.3g}", (min(claim.fastest, edge), row), **beside)


def _advantages(found: list[Advantage]) -> Figure:
    given = [one for one in found if one.ratio is not None]
    if not given:
        raise Missing("every ratio is withheld; the reasons stand with the cells")
    figure, axes = _rows([one.cell for one in found], CELL_INCHES)
    for row, one in enumerate(found):
        if one.ratio is not None:
            _interval(axes, row, (one.ratio, one.low, one.high), PORT)
    _ratio_axis(axes, "port's advantage")
    return figure


def _rows(names: list[str], inches: float) -> tuple[Figure, Axes]:
    """One line a name, the first on top."""
    figure = Figure(figsize=(SIZE_INCHES[0], FRAME_INCHES + inches * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), list(map(plain, names)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    return figure, axes


def _interval(axes: Axes, row: int, ends: tuple[float, float | None, float | None], colour: str) -> None:
    value, low, high = ends
    bar = None if low is None else [[value - low], [high - value]]
    axes.errorbar([value], [row], xerr=bar, fmt="o", ms=3, capsize=2, lw=1, color=colour)


def _ratio_axis(axes: Axes, label: str) -> None:
    """Never so narrow that a per cent looks large."""
    axes.set_xscale("log")
    axes.axvline(1, color=LIMIT, lw=0.8)
    axes.plot(NARROWEST, (0, 0), ls="none")
    log_ticks(axes.xaxis)
    axes.set_xlabel(label)
