"""How alike an observed failure is to the recorded ones of planted faults.

A signature holds, for every check that fails at a fault's first failing rung, its traits: words of the first place over the limit
and of the values; how many places are over by kind of place; the smallest and largest got / expected; log10 of the share of the
limit (exact checks: of the number of differences); the share of places over the limit.

    agreement of two traits of one check = sum(weight x likeness) / sum(weight), over what either has, in [0, 1]
        first        1 for the same words of the first place over the limit, else half of shared words / all words
        values       shared words / all words of expected and got of an exact check, and of the reason
        kinds        of the places over the limit by kind, as shares: sum of the smaller / sum of the larger; errors: the same of how
                     far they are over, summed by kind, which does not depend on the size of a fault as long as its effect is linear
        low, high    exp(- distance of the factors' logarithms as a share of the larger / FACTOR_WIDTH): 1.01 is as far from 1.02 as
                     1.0001 from 1.0002; at least SIZED, of a fault that is one size of many
        uniform      1 where the factor is one and the same at all places in both, or in neither
        size         1 - difference in decades / DECADES, at least 0; not of one size of many
        over         1 - difference of the shares of places

    similarity = sum(agreement of the checks in both) / (checks in both + checks that should have failed and passed
                                                         + EXTRA x checks that failed beyond the signature)

A check that did not run yet says nothing. One that fails beyond the signature counts little, because only parts of a rung were
recorded under a fault.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from conformance.findings import Finding, Verdict, factor, kind_of

FILE = Path(__file__).parent / "faults" / "signatures.json"
WEIGHTS = {"first": 2.0, "kinds": 1.0, "errors": 2.0, "values": 1.0, "low": 3.0, "high": 3.0, "uniform": 1.0, "size": 1.0, "over": 1.0}
EXTRA = 0.25
DECADES = 3.0
FACTOR_WIDTH = 0.2
SIZED = 0.8  # another size may be any; a factor that is the same still says more
RESOLUTION = 2.5e-7  # of float32, 2 units in the last place at 1
ONE_FACTOR = 0.1  # of the larger logarithm: estimated from a short sample of a tensor, one factor scatters by a few per cent
MOST = 1e9  # instead of an infinite factor, where nothing was expected
CLOSE = 0.6  # below it no planted fault is close

RELATIVE = re.compile(r"\brelative\b")
MOST_KINDS = 12  # of a signature: tensors by name


@dataclass(frozen=True, slots=True)
class Traits:
    """What one failing check shows. Words are sorted, without numbers; None where there is no number."""

    first: tuple[str, ...] = ()
    kinds: Mapping[str, float] = field(default_factory=dict)  # shares
    errors: Mapping[str, float] = field(default_factory=dict)  # shares
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    size: float | None = None
    over: float | None = None


Signature = Mapping[str, Traits]  # by check


def signature_of(findings: Iterable[Finding]) -> dict[str, Traits]:
    """Of those that failed."""
    return {finding.check: traits(finding) for finding in findings if finding.verdict is Verdict.FAIL}


def traits(finding: Finding) -> Traits:
    size = finding.used_percent / 100 if finding.used_percent else finding.measured
    low, high = (finding.low, finding.high) if finding.low is not None else (ratio(finding),) * 2
    return Traits(
        first=_words(finding.first or finding.where),
        kinds=_shares(finding.kinds),
        errors=_shares(finding.errors),
        values=_words(finding.reason if finding.limit else f"{finding.expected} {finding.got} {finding.reason}"),
        low=_rounded(low),
        high=_rounded(high),
        size=round(math.log10(size), 1) if size else None,
        over=round(finding.over / finding.compared, 2) if finding.compared else None,
    )


def ratio(finding: Finding) -> float | None:
    """got / expected: of the worst place, else the one of all places, else 1 + a relative difference; None where there is none."""
    found = factor(finding.got, finding.expected)
    if found is not None:
        return found if math.isfinite(found) else None
    if is_uniform(finding.low, finding.high):
        return math.sqrt(finding.low * finding.high) if finding.low > 0 else finding.low
    return 1 + finding.measured if finding.limit and finding.measured is not None and RELATIVE.search(finding.unit) else None


def is_uniform(low: float | None, high: float | None) -> bool | None:
    """Whether it is one factor at all places; None where there is none."""
    if low is None or high is None:
        return None
    return _distance(low, high) < ONE_FACTOR or abs(high - low) < RESOLUTION


def similarity(observed: Signature, signature: Signature, *, sized: bool, passed: Collection[str] = ()) -> float:
    """In [0, 1]. `sized`: the fault is one size of many; `passed`: checks of the rung that ran and did not fail."""
    common = [agreement(observed[check], signature[check], sized=sized) for check in observed if check in signature]
    missing, extra = len(set(signature) & set(passed)), len(observed) - len(common)
    return sum(common) / (len(common) + missing + EXTRA * extra) if common else 0.0


def agreement(observed: Traits, recorded: Traits, *, sized: bool) -> float:
    likeness = {"first": _same_place(observed.first, recorded.first), "values": _shared(observed.values, recorded.values)}
    likeness |= {name: _overlap(getattr(observed, name), getattr(recorded, name)) for name in ("kinds", "errors")}
    factors = _of_sizes if sized else _same_factor
    likeness |= {name: _both(getattr(observed, name), getattr(recorded, name), factors) for name in ("low", "high")}
    likeness["uniform"] = _both(*(is_uniform(one.low, one.high) for one in (observed, recorded)), lambda a, b: float(a == b))
    likeness["size"] = None if sized else _both(observed.size, recorded.size, lambda a, b: max(0.0, 1 - abs(a - b) / DECADES))
    likeness["over"] = _both(observed.over, recorded.over, lambda a, b: 1 - abs(a - b))
    known = {name: value for name, value in likeness.items() if value is not None}
    return sum(WEIGHTS[name] * value for name, value in known.items()) / (sum(WEIGHTS[name] for name in known) or 1)


@cache
def read_signatures(path: Path = FILE) -> dict[str, dict[str, Traits]]:
    """Fault -> its signature."""
    return {fault: {check: _traits(values) for check, values in checks.items()} for fault, checks in _read(path)["faults"].items()}


@cache
def recipe_of_signatures(path: Path = FILE) -> str:
    """Digest of the recipe that they were recorded with."""
    return _read(path)["recipe"]


def write_signatures(path: Path, recipe: str, signatures: Mapping[str, Signature]) -> None:
    """A line a fault, written beside and renamed."""
    lines = (f"{json.dumps(fault)}: {json.dumps(_plain(signature))}" for fault, signature in signatures.items())
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(f'{{"recipe": {json.dumps(recipe)},\n"faults": {{\n' + ",\n".join(lines) + "\n}}\n")
    partial.rename(path)


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


def _plain(signature: Signature) -> dict:
    """Without what is empty."""
    return {check: {name: _text(value) for name, value in asdict(one).items() if _is_known(value)} for check, one in signature.items()}


def _is_known(value) -> bool:
    return value not in ((), {}, None)


def _text(value):
    return " ".join(value) if isinstance(value, tuple) else value


def _traits(values: dict) -> Traits:
    return Traits(**{name: tuple(value.split()) if isinstance(value, str) else value for name, value in values.items()})


def _words(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(kind_of(text).lower().split())))


def _shares(kinds: Mapping[str, float]) -> dict[str, float]:
    """Of the most frequent kinds."""
    most = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:MOST_KINDS]
    total = sum(kinds.values())
    return {kind: round(count / total, 2) for kind, count in most}


def _overlap(a: Mapping[str, float], b: Mapping[str, float]) -> float | None:
    if not a and not b:
        return None
    pairs = [(a.get(kind, 0.0), b.get(kind, 0.0)) for kind in {*a, *b}]
    return sum(map(min, pairs)) / sum(map(max, pairs))


def _same_place(a: tuple[str, ...], b: tuple[str, ...]) -> float | None:
    """Another place counts half at most."""
    shared = _shared(a, b)
    return shared if shared in (None, 1.0) else shared / 2


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> float | None:
    return len(set(a) & set(b)) / len(set(a) | set(b)) if a or b else None


def _both(a, b, likeness: Callable[..., float]) -> float | None:
    """None where neither has a number, 0 where only one has."""
    if a is None and b is None:
        return None
    return 0.0 if a is None or b is None else likeness(a, b)


def _same_factor(a: float, b: float) -> float:
    return math.exp(-_distance(a, b) / FACTOR_WIDTH)


def _of_sizes(a: float, b: float) -> float:
    return max(SIZED, _same_factor(a, b))


def _distance(a: float, b: float) -> float:
    """Of two factors' logarithms, as a share of the larger; 0 of equal ones, infinite beside 0 and negative ones."""
    if a == b:
        return 0.0
    if min(a, b) <= 0:
        return math.inf
    return abs(math.log(a / b)) / max(abs(math.log(a)), abs(math.log(b)))


def _rounded(value: float | None) -> float | None:
    """Eight digits: some faults are 2 units in the last place of float32."""
    return None if value is None else float(f"{max(-MOST, min(MOST, value)):.8g}")
