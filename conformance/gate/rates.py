"""The highest rate that a server holds within a limit on its latencies; rates are tried one by one, so it lies between two of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.bench.cell_report import CellResult, CellSummary
from conformance.bench.validity import open_checks
from conformance.claims.claims_file import Claim
from conformance.gate.values import STACKS, Values
from conformance.statistics import Ratio


@dataclass(frozen=True, slots=True)
class Held:
    """Of each start: the highest rate held before the first that was not, 0 for none; and that first one, infinite where all were."""

    held: tuple[float, ...]
    failed: tuple[float, ...]


def highest_rate(claim: Claim, cells: Sequence[tuple[CellSummary, CellSummary]]) -> Values:
    """`cells`: the open cells of one length, reference and port, by rising rate. Requests/s.

    The interval has no chance in it: at the least the numerator's worst start holds what it held and the denominator's best just misses
    what it missed, and the other way round.
    """
    sides = [(stack, one) for pair in cells for stack, one in zip(STACKS, pair, strict=True)]
    reasons = [reason for stack, one in sides for reason in _reasons(stack, one, claim)]
    if not claim.slo_ttft_ms and not claim.slo_tpot_ms:
        reasons.append("a highest rate needs a limit: slo_ttft_ms, slo_tpot_ms or both")
    if reasons:
        return Values(unit="requests/s", reasons=tuple(dict.fromkeys(reasons)))
    found = {stack: _held(claim, [pair[index] for pair in cells]) for index, stack in enumerate(STACKS)}
    none = [f"{stack}: not even {cells[0][0].cell.level:g} requests/s is held" for stack, one in found.items() if min(one.held) == 0]
    values = Values(found["reference"].held, found["port"].held, "requests/s", tuple(none), bounds=None)
    if none:
        return values
    bounds = _bounds(found[claim.numerator], found[claim.denominator])
    return Values(values.reference, values.port, values.unit, tuple(_unbounded(claim, bounds)), (_limits(claim),), bounds)


def _held(claim: Claim, cells: Sequence[CellSummary]) -> Held:
    starts = range(len(cells[0].results))
    pairs = [_of_start(claim, [(cell.cell.level, cell.results[start]) for cell in cells]) for start in starts]
    return Held(tuple(held for held, _ in pairs), tuple(failed for _, failed in pairs))


def _of_start(claim: Claim, results: Sequence[tuple[float, CellResult]]) -> tuple[float, float]:
    held = 0.0
    for level, result in results:
        if not _keeps(claim, result):
            return held, level
        held = level
    return held, float("inf")


def _keeps(claim: Claim, result: CellResult) -> bool:
    """A cell that was left out is beyond one that was saturated."""
    if result.left_out or result.saturated:
        return False
    return all(getattr(getattr(result.figures, name), claim.percentile) <= limit for name, limit in _limited(claim).items())


def _limited(claim: Claim) -> dict[str, float]:
    """Figure -> its limit in ms."""
    return {name: limit for name, limit in (("ttft_ms", claim.slo_ttft_ms), ("tpot_ms", claim.slo_tpot_ms)) if limit}


def _reasons(stack: str, summary: CellSummary, claim: Claim) -> Iterator[str]:
    for result in summary.results:
        yield from (f"{stack}: {summary.cell.name}: start {result.replicate}: {check}" for check in open_checks(result.checks))
        limited = () if result.left_out else _limited(claim)
        none = [name for name in limited if getattr(getattr(result.figures, name), claim.percentile) is None]
        yield from (f"{stack}: {summary.cell.name}: too few requests for a {claim.percentile} of {name}" for name in none)


def _bounds(numerator: Held, denominator: Held) -> Ratio:
    def middle(values: Sequence[float]) -> float:
        return sorted(values)[len(values) // 2]

    value = middle(numerator.held) / middle(denominator.held)
    low, high = min(numerator.held) / max(denominator.failed), max(numerator.failed) / min(denominator.held)
    return Ratio(value, low, high, low, (len(numerator.held), len(denominator.held)), high)


def _unbounded(claim: Claim, bounds: Ratio) -> Iterator[str]:
    if claim.kind == "at_least" and bounds.low == 0:
        yield f"the {claim.denominator} holds every rate that was tried: its highest was not reached, so there is no lower bound"
    if claim.kind != "at_least" and bounds.high == float("inf"):
        yield f"the {claim.numerator} holds every rate that was tried: its highest was not reached, so there is no upper bound"


def _limits(claim: Claim) -> str:
    limits = {"TTFT": claim.slo_ttft_ms, "TPOT": claim.slo_tpot_ms}
    return f"{claim.percentile} of " + ", ".join(f"{name} at most {limit:g} ms" for name, limit in limits.items() if limit)
