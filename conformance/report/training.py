"""Facts of timed training: launches by outcome, and the benchmark's own figures of whole ones."""

from collections import Counter
from collections.abc import Iterator

from conformance.bench.prices import Price, read_prices
from conformance.bench.speed_of_light import Machine, read_machine
from conformance.bench.training.figures import LaunchFigures, figures_of, interval_of
from conformance.bench.training.flops import FORMULA
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import OK, Launch
from conformance.bench.training.show import SHOWN
from conformance.contract.errors import ContractError
from conformance.gate.evidence import Evidence
from conformance.gate.proof import proof_of
from conformance.report.measured import Estimate, Measured, Training
from conformance.report.names import priced
from conformance.trajectories import series, summaries


def training_facts(measured: Measured) -> tuple[Training, ...]:
    prices = read_prices(measured.prices) if measured.trainings else {}
    return tuple(_training(stack, one, prices, measured.evidence) for stack, one in measured.trainings)


def machine_of(one: TrainingMeasurements) -> Machine | None:
    """None where the measurement does not say which."""
    return read_machine(one.manifest.machine) if one.manifest.machine else None


def _training(stack: str, one: TrainingMeasurements, prices: dict[str, Price], evidence: Evidence | None) -> Training:
    manifest = one.manifest
    name = f"{stack}, {' '.join(filter(None, (manifest.platform.upper(), manifest.machine)))}"
    counts = dict(Counter(launch.outcome for launch in one.launches))
    not_whole = tuple(map(_said, filter(lambda launch: launch.outcome != OK, one.launches)))
    about = (manifest.machine, manifest.chips, manifest.launches, counts, not_whole, manifest.steps, manifest.warm_up)
    target = _target(one, evidence)
    try:
        estimates, problem = tuple(_estimates(figures_of(one, machine_of(one), target))), ""
    except ContractError as error:  # times that no clock gives: the gate withholds every claim for it
        estimates, problem = (), str(error)
    return Training(name, *about, priced(prices.get(manifest.machine)), estimates, problem, target, FORMULA)


def _said(launch: Launch) -> str:
    return f"launch {launch.number} {launch.outcome}: {launch.reason or 'no reason given'}"


def _estimates(figures: tuple[LaunchFigures, ...]) -> Iterator[Estimate]:
    """Those that every whole launch has, under the benchmark's names."""
    for name, (label, unit, factor) in SHOWN.items():
        values = [getattr(one, name) for one in figures]
        if values and None not in values and min(values) > 0:
            found = interval_of(figures, name)
            ends = (end if end is None else factor * end for end in (found.low, found.high))
            where = f" of {figures[0].memory_of}" if name == "peak_memory_bytes" else ""
            yield Estimate(label, f"{unit}{where}", factor * found.value, found.n, *ends)


def _target(one: TrainingMeasurements, evidence: Evidence | None) -> float | None:
    """The loss at which the reference's run ends, mean of its last tenth; None where its run has other steps."""
    proof = evidence and proof_of(evidence.proofs, one.manifest.recipe_sha256)
    if proof is None or not proof.pair.reference.has("trajectory"):
        return None
    losses = series(proof.pair.reference, "f32", "loss")
    return float(summaries(losses)["last tenth"]) if len(losses) == one.manifest.steps else None
