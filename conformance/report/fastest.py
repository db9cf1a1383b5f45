"""How large a claim's ratio could be at the most: the port's machine at its peak, against what was measured of it."""

from collections.abc import Iterator

from scipy.stats import gmean

from conformance.bench.cell_report import CellSummary
from conformance.bench.measurements import Measurements
from conformance.bench.speed_of_light import Bounds, bounds_of, read_machine
from conformance.bench.training.figures import figures_of
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.claims.claims_file import Claim
from conformance.contract.errors import ContractError
from conformance.gate.evidence import Evidence
from conformance.gate.results import ClaimResult, GateResult
from conformance.gate.values import LOWER_IS_BETTER, TRAINING
from conformance.report.training import machine_of

PORT = "port"
LATENCIES = ("ttft_ms", "tpot_ms")  # as claims and bounds name them


def fastest_ratios(gate: GateResult, evidence: Evidence) -> dict[str, float]:
    """Claim -> ratio at the speed of light; of measured claims that grow as the port gets faster, where the machine's peak is known."""
    found = ((result.claim.name, _headroom(result, evidence)) for result in gate.claims if result.measured and _grows(result.claim))
    ratios = {result.claim.name: result.measured.value for result in gate.claims if result.measured}
    return {name: ratios[name] * headroom for name, headroom in found if headroom is not None}


def _grows(claim: Claim) -> bool:
    return (claim.denominator if claim.metric in LOWER_IS_BETTER else claim.numerator) == PORT


def _headroom(result: ClaimResult, evidence: Evidence) -> float | None:
    """By what factor the port could be faster: at least 1, or it was measured to be faster than light."""
    try:
        if result.claim.metric in TRAINING:
            return _training(evidence.trainings.by_stack[PORT])
        return next(_serving(result, evidence), None)
    except ContractError:  # no peak of this machine: nothing is marked
        return None


def _training(one: TrainingMeasurements) -> float | None:
    """None without an MFU: of a CPU, or where the FLOP of the steps was not recorded."""
    shares = [figures.mfu for figures in figures_of(one, machine_of(one))]
    return 1 / float(gmean(shares)) if shares and all(shares) else None


def _serving(result: ClaimResult, evidence: Evidence) -> Iterator[float]:
    """None where the claim is not about cells of a sweep, or the model's size was not recorded."""
    sweep = evidence.sweeps.by_stack.get(PORT) if evidence.sweeps else None
    cells = evidence.sweeps.cells(result.claim) if sweep and result.claim.cell else ()
    if isinstance(cells, str) or not cells or sweep.manifest.subject.model is None:
        return
    if result.claim.metric in LATENCIES:
        bounds = _bounds(sweep, cells[0].b)
        yield float(gmean(result.denominator)) / getattr(bounds, result.claim.metric)
    else:
        rates = [_bounds(sweep, one.b).requests_per_s * _output_tokens(one.b) for one in cells]
        peak = max(float(gmean(values)) for one in cells if (values := _rates(one.b)))
        yield max(rates) / peak


def _rates(summary: CellSummary) -> list[float]:
    return [one.figures.output_tokens_per_s for one in summary.results if one.figures and one.figures.output_tokens_per_s]


def _bounds(sweep: Measurements, summary: CellSummary) -> Bounds:
    """Generous: a cache whose dtype is not asked for may have half the bytes."""
    subject = sweep.manifest.subject
    return bounds_of(read_machine(subject.machine), subject.model.served({}), summary.cell, _output_tokens(summary))


def _output_tokens(summary: CellSummary) -> float:
    """Of a reply on average."""
    lengths = [item for one in summary.results if one.figures for item in one.figures.output_lengths.items()]
    return sum(tokens * count for tokens, count in lengths) / sum(count for _, count in lengths)
