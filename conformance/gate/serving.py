"""What two sweeps measured for a claim about serving: which side each is, and the values of its cell, or why there are none."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.bench.cell_report import LATENCIES, OUTPUT_RATE, CellSummary, Metric
from conformance.bench.comparison import CellComparison, Comparison, compare, server_manifests
from conformance.bench.load import Measurement
from conformance.bench.measurements import Measurements
from conformance.bench.validator import problems
from conformance.claims.claims_file import Claim
from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.levels import device_kind
from conformance.contract.serving.identity import merged_digests
from conformance.gate.costs import Prices
from conformance.gate.proof import Proof
from conformance.gate.rates import highest_rate
from conformance.gate.values import STACKS, Values, quantity_problem
from conformance.statistics import geometric_mean

CELL = re.compile(r"(?P<input>\d+)(?: at (?P<rate>\d+(?:\.\d+)?)/s)?")
NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT"}
MILLION = 1e6
NOT_YET = "not measured yet"


@dataclass(frozen=True)
class Sweeps:
    """`by_stack`: the sweep of each side, by what it served. `reasons`: why no claim about serving holds."""

    by_stack: dict[str, Measurements]
    reasons: tuple[str, ...]

    @cached_property
    def comparison(self) -> Comparison:
        """Of the port with the reference: computed from the raw events, once for all claims."""
        return compare(*(self.by_stack[stack] for stack in STACKS))

    def values(self, claim: Claim, prices: Prices) -> Values:
        """Of TTFT, TPOT or output tokens/s; or of dollars for a million output tokens."""
        if problem := quantity_problem(claim):
            return Values(reasons=(problem,))
        measured = self._measured(claim)
        if claim.metric != "cost_per_token" or measured.reasons:
            return measured
        machines = {stack: self.by_stack[stack].manifest.subject.machine for stack in STACKS}
        unpriced = [reason for machine in dict.fromkeys(machines.values()) for reason in prices.reasons(machine)]
        if unpriced:
            return measured.withheld(*unpriced)
        dollars = (tuple(prices.usd(machines[stack], MILLION / rate) for rate in measured.of(stack)) for stack in STACKS)
        notes = (*measured.notes, *map(prices.note, dict.fromkeys(machines.values())))
        return Values(*dollars, "$ per million output tokens", notes=notes)

    def _measured(self, claim: Claim) -> Values:
        missing = [f"no sweep of the {stack}: none of those given served its merged checkpoint" for stack in STACKS
                   if stack not in self.by_stack]  # fmt: skip
        if missing or self.reasons:
            return Values(reasons=(*self.reasons, *missing))
        metric = OUTPUT_RATE if claim.metric not in NAMES else _latency(f"{NAMES[claim.metric]} {claim.percentile}")
        cells = self.cells(claim)
        if isinstance(cells, str):
            return Values(reasons=(cells, *self.comparison.general))
        if claim.quantity == "highest_rate":
            return self._rate(claim, cells)
        return self._peak(cells, metric) if claim.quantity == "peak" else self._single(cells[0], metric)

    def _single(self, cell: CellComparison, metric: Metric) -> Values:
        reasons = (*_withheld(cell, metric), *self._not_measured(cell))
        return Values(tuple(cell.a.values(metric)), tuple(cell.b.values(metric)), metric.unit, reasons, (f"cell {cell.a.cell.name}",))

    def _peak(self, cells: Sequence[CellComparison], metric: Metric) -> Values:
        """Each side at its own best level; every level must be valid on both, or the best one of a side might be the one left out."""
        named = [(cell.a.cell.name, [*_withheld(cell, metric), *self._not_measured(cell)]) for cell in cells]
        reasons = [f"{name}: {reason}" for name, found in named for reason in found]
        if reasons := (*self.comparison.general, *reasons):  # a level that one side has not is among the general ones
            return Values(unit=metric.unit, reasons=reasons)
        sides = zip(*((cell.a, cell.b) for cell in cells), strict=True)
        best = [max(side, key=lambda one: geometric_mean(one.values(metric)).value) for side in sides]
        notes = tuple(f"{stack}: peak at {one.cell.name}" for stack, one in zip(STACKS, best, strict=True))
        return Values(*(tuple(one.values(metric)) for one in best), metric.unit, notes=notes)

    def _rate(self, claim: Claim, cells: Sequence[CellComparison]) -> Values:
        """Levels that a saturated series left out are beyond what is held, and no reason of their own."""
        missing = [f"{cell.a.cell.name}: {reason}" for cell in cells for reason in self._not_measured(cell)]
        others = [f"{cell.a.cell.name}: other requests were sent to the two sides" for cell in cells if cell.a.digest != cell.b.digest]
        pairs = sorted(((cell.a, cell.b) for cell in cells), key=lambda pair: pair[0].cell.level)
        if reasons := (*self.comparison.general, *missing, *others, *self._few_starts(pairs[0])):
            return Values(unit="requests/s", reasons=reasons)
        return highest_rate(claim, pairs)

    def best_rates(self) -> dict[str, float]:
        """Output tokens/s of each side at its best cell, by geometric mean over starts; 0 where no cell has any."""
        sides = {"reference": [cell.a for cell in self.comparison.cells], "port": [cell.b for cell in self.comparison.cells]}
        rates = {stack: [one.values(OUTPUT_RATE) for one in cells] for stack, cells in sides.items()}
        means = {stack: [geometric_mean(one).value for one in found if one and min(one) > 0] for stack, found in rates.items()}
        return {stack: max(found, default=0.0) for stack, found in means.items()}

    def _few_starts(self, lowest: tuple[CellSummary, CellSummary]) -> Iterator[str]:
        """Of the lowest rate, which no start leaves out."""
        for stack, one in zip(STACKS, lowest, strict=True):
            yield from (f"{stack}: {reason}" for reason in one.reasons)

    def cells(self, claim: Claim) -> list[CellComparison] | str:
        """Those that the claim is about, or why there are none."""
        match = CELL.fullmatch(claim.cell)
        wanted = _of_length(claim, match) if match else lambda one: one.cell.name == claim.cell
        found = [cell for cell in self.comparison.cells if wanted(cell.a)]
        if not found:
            return f"cell {claim.cell!r}: not in both sweeps"
        if claim.quantity == "ratio" and len(found) > 1:
            return f"cell {claim.cell!r}: {len(found)} cells are meant; name the rate ({claim.cell} at 4/s) or the cell"
        if len({one.a.cell.output_tokens for one in found}) > 1:
            return f"cell {claim.cell!r}: cells of several output lengths; name the cell"
        return found

    def _not_measured(self, cell: CellComparison) -> Iterator[str]:
        """Starts that were planned and have no such cell: dropped, or not come to."""
        for stack, side in self.by_stack.items():
            missing = [number for number in side.replicates if not side.has(number, cell.a.cell)]
            if missing:
                planned = side.manifest.replicates
                yield f"{stack}: {planned} starts planned, {planned - len(missing)} measured: start {missing[0]} is missing"


def assign(sweeps: Sequence[Measurements], proof: Proof | None) -> Sweeps:
    """Each sweep to the stack whose merged checkpoint it served, by the digests of the weights; what does not fit is a reason."""
    if not sweeps:
        return Sweeps({}, ())
    if proof is None or proof.pair is None:
        return Sweeps({}, ("which side a sweep is of cannot be told without the bundles whose merged checkpoints were served",))
    by_stack, reasons = {}, []
    for sweep in sweeps:
        found = _served(sweep, proof)
        if found not in STACKS:
            reasons.append(f"sweep {sweep.path}: {found}")
        elif found in by_stack:
            reasons.append(f"sweeps {by_stack[found].path} and {sweep.path} are both of the {found}")
        else:
            by_stack[found] = sweep
    for stack, sweep in by_stack.items():
        reasons += _problems(stack, sweep, getattr(proof.pair, stack))
    return Sweeps(by_stack, tuple(reasons))


def _served(sweep: Measurements, proof: Proof) -> str:
    """The stack, or why it is none."""
    weights = [manifest.get("weights_sha256", {}) for manifest in server_manifests(sweep)]
    if not weights or not all(weights):
        return "which weights were served is not recorded (no manifest of `parity serve`)"
    if any(one != weights[0] for one in weights):
        return "mixed checkpoints: its starts served different weights"
    bundles, platform = {stack: getattr(proof.pair, stack) for stack in STACKS}, sweep.manifest.subject.platform
    if weights[0] == proof.pair.reference.manifest["checkpoint_sha256"]:
        return "it served the base checkpoint, not a merged one"
    stacks = [stack for stack, bundle in bundles.items() if merged_digests(bundle) == weights[0]]
    on_its_device = [stack for stack in stacks if device_kind(bundles[stack].manifest.get("device", "")) == platform]
    return (on_its_device or stacks or ["mixed checkpoints: it served weights that neither bundle merged (sha256)"])[0]


def _problems(stack: str, sweep: Measurements, bundle: Bundle) -> Iterator[str]:
    platform, kind = sweep.manifest.subject.platform, device_kind(bundle.manifest.get("device", ""))
    if platform != kind:
        yield f"swapped sides: sweep {sweep.path} served the {stack}'s merge on platform {platform!r}, but its bundle is of a {kind}"
    try:
        yield from (f"sweep {sweep.path}: {one}" for one in problems(sweep) if not one.endswith(NOT_YET))
        yield from (f"sweep {sweep.path}: {one}" for one in _copies(sweep))
    except ContractError as error:  # a record that no measuring client writes, such as a time that is no number
        yield str(error)


def _copies(sweep: Measurements) -> Iterator[str]:
    """Two starts never answer to the nanosecond alike."""
    for cell in sweep.plan.cells:
        seen: dict[tuple, int] = {}
        for number in (number for number in sweep.replicates if sweep.has(number, cell)):
            events = _events(sweep.read(number, cell).run)
            if events and events in seen:
                yield f"one run copied: {cell.name} of start {number} has the raw times of start {seen[events]}"
            seen.setdefault(events, number)


def _events(run: Measurement | None) -> tuple:
    """All times of a run, from its beginning."""
    records = run.records if run else ()
    return tuple((one.sent_ns - run.origin_ns, *(chunk - run.origin_ns for chunk in one.chunk_ns)) for one in records if one.sent_ns)


def _of_length(claim: Claim, match: re.Match) -> Callable[[CellSummary], bool]:
    modes = ("closed", "burst") if claim.quantity == "peak" else ("open",)
    rate = match["rate"] and float(match["rate"])

    def wanted(one: CellSummary) -> bool:
        cell = one.cell
        return cell.input_tokens == int(match["input"]) and cell.length == "fixed" and cell.mode in modes and rate in (None, cell.level)

    return wanted


def _withheld(cell: CellComparison, metric: Metric) -> tuple[str, ...]:
    """With the sides by their names: A is the reference, B the port."""
    found = [ratio for ratio in cell.ratios if ratio.metric.name == metric.name]
    if not found:
        return (f"{metric.name} was measured on neither side",)
    return tuple(_with_stack(reason) for reason in found[0].withheld)


def _with_stack(reason: str) -> str:
    for letter, stack in zip("AB", STACKS, strict=True):
        reason = re.sub(rf"^{letter}(?=[: ])", stack, reason)
    return reason


def _latency(name: str) -> Metric:
    return next(metric for metric in LATENCIES if metric.name == name)
