"""A measurement in words: launches, figures with their intervals, checks, what it cost."""

from collections.abc import Iterable, Iterator

from conformance.bench.prices import Price
from conformance.bench.training.figures import LaunchFigures, interval_of
from conformance.bench.training.flops import FORMULA
from conformance.bench.training.launcher import seconds_of
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import OK
from conformance.bench.validity import Check

# Field -> (label, unit, factor).
SHOWN = {
    "step_ms": ("step, median", "ms", 1.0),
    "mean_step_ms": ("step, mean", "ms", 1.0),
    "tokens_per_s": ("tokens", "1/s", 1.0),
    "targets_per_s": ("targets", "1/s", 1.0),
    "first_step_s": ("time to first step", "s", 1.0),
    "compile_s": ("of it, compiling", "s", 1.0),
    "train_s": ("training", "s", 1.0),
    "launch_s": ("whole launch", "s", 1.0),
    "to_target_s": ("time to target loss", "s", 1.0),
    "final_loss": ("last step's loss", "", 1.0),
    "peak_memory_bytes": ("peak memory", "GB", 1e-9),
    "mfu": ("MFU", "%", 100.0),
}


def measurement_lines(
    measurements: TrainingMeasurements, figures: tuple[LaunchFigures, ...], checks: Iterable[Check], target_loss: float | None,
    price: Price | None,
) -> Iterator[str]:  # fmt: skip
    manifest = measurements.manifest
    where = ", ".join(filter(None, (manifest.machine, manifest.platform, str(manifest.environment.get("device", "")))))
    yield f"{manifest.side}: {manifest.stack} on {where}; chips that trained: {manifest.chips}"
    yield f"  {manifest.steps} steps a launch, the first {manifest.warm_up} in no step time"
    for launch in measurements.launches:
        yield f"  launch {launch.number}: {launch.outcome}{launch.reason and ': ' + launch.reason}, {seconds_of(launch):.1f} s"
    if measurements.left:
        yield f"  {measurements.left} launches are left"
    if figures:
        yield f"  geometric mean of {len(figures)} launches, 95 % interval"
        yield from _figure_lines(measurements, figures, target_loss)
    yield from _cost_lines(measurements, price)
    yield from (f"  {check}" for check in checks)


def _figure_lines(measurements: TrainingMeasurements, figures: tuple[LaunchFigures, ...], target_loss: float | None) -> Iterator[str]:
    for name, (label, unit, factor) in SHOWN.items():
        interval = interval_of(figures, name)
        if name == "peak_memory_bytes":
            label += f" ({figures[0].memory_of or 'not known'})"
        if name == "to_target_s" and target_loss is not None:
            label += f" {target_loss:.4g}"
        if interval is None:
            nothing = any(getattr(one, name) == 0 for one in figures)
            yield f"    {label:<28} {'nothing in some launch' if nothing else _why_not(name, measurements, target_loss)}"
            continue
        ends = "" if interval.low is None else f"  [{factor * interval.low:.5g}, {factor * interval.high:.5g}]"
        yield f"    {label:<28} {factor * interval.value:.5g} {unit}{ends}"
    yield f"    {'padding':<28} {figures[0].padding:.0%} of positions"
    if figures[0].mfu is not None:
        yield f"    {FORMULA}"


def _why_not(name: str, measurements: TrainingMeasurements, target_loss: float | None) -> str:
    if name == "mfu":
        return "no peak, no MFU: a CPU" if measurements.manifest.platform == "cpu" else "no peak, no MFU: no --machine"
    if name == "to_target_s":
        return "no target" if target_loss is None else "not reached by every launch"
    return "not known to the stack"


def _cost_lines(measurements: TrainingMeasurements, price: Price | None) -> Iterator[str]:
    """Of every launch, whole or not: all of them were paid for."""
    hours = sum(map(seconds_of, measurements.launches)) / 3600
    lost = sum(seconds_of(launch) for launch in measurements.launches if launch.outcome != OK) / 3600
    cost = "no price" if price is None else f"${hours * price.usd_per_hour:.2f} ({price.source}, {price.date})"
    yield f"  launches took {hours:.3f} h, {lost:.3f} h of them without a result: {cost}"
