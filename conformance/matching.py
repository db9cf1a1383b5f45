"""How alike an observed failure is to the recorded ones of planted faults.

A signature holds, for every check that fails at a fault's first failing rung, its traits: words of the first place over the limit
and of the values; how many places are over by kind of place; the smallest and largest got / expected; shape of the error at the
first place; log10 of the share of the limit (exact checks: of the number of differences); the share of places over the limit.

    agreement of two traits of one check = sum(weight x likeness) / sum(weight), over what either has, in [0, 1]
        first        1 for the same words of the first place over the limit, else half of shared words / all words
        values       shared words / all words of expected and got of an exact check, and of the reason
        kinds        of the places over the limit by kind, as shares: sum of the smaller / sum of the larger; errors: the same of how
                     far they are over, summed by kind, which does not depend on the size of a fault as long as its effect is linear
        low, high    near(difference of the factors as a share of the larger distance from 1): 1.01 is as far from 1.02 as 1.0001 from
                     1.0002. A factor is read only where the error is one (compare.ErrorShape)
        along        near(difference of the cosines of error and truth), at the first place
        spread       near(difference in decades of the shares of rows that the error lies in), at the first place
        size         near(difference in decades)
        uniform      1 where the factor is one and the same at all places in both, or in neither
        over         1 - difference of the shares of places

    near(d) = exp(- (d / width)^2). A width is about twice what nine in ten differ by where the same fault is recorded on another recipe
    (measured on two; of `size` more, since limits are another model's too). Of a fault that is one size of many, factors and size may
    be any, and an effect that is not small bends the shape of the error: AT_LEAST.

    similarity = sum(agreement of the checks in both) / (checks in both + checks that should have failed and passed
                                                         + EXTRA x checks that failed beyond the signature)

A check that did not run yet says nothing. One that fails beyond the signature counts little, because only parts of a rung were
recorded under a fault.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from conformance.findings import Finding, Verdict, factor, kind_of

WEIGHTS = {
    "first": 2.0, "kinds": 1.0, "errors": 2.0, "values": 1.0, "low": 3.0, "high": 3.0, "along": 3.0, "spread": 2.0, "size": 2.0,
    "uniform": 1.0, "over": 1.0,
}  # fmt: skip
FACTORS = ("low", "high")
WIDTHS = {"low": 0.5, "high": 0.5, "along": 0.2, "spread": 0.6, "size": 1.0}
AT_LEAST = {"low": 0.8, "high": 0.8, "along": 0.5, "spread": 0.5, "size": 0.8}  # of one size of many; the same says more
EXTRA = 0.25
RESOLUTION = 2.5e-7  # of float32, 2 units in the last place at 1
ONE_FACTOR = 0.15  # of the distance from 1: estimated from a short sample of a tensor, 2.449 scatters by several per cent
MOST = 1e9  # instead of an infinite factor, where nothing was expected
CLOSE = 0.65  # below it no planted fault is close

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
    along: float | None = None
    spread: float | None = None  # log10
    size: float | None = None  # log10
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
        along=None if finding.along is None else round(finding.along, 3),
        spread=_decades(finding.spread, 2),
        size=_decades(size, 1),
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
    return _factors_apart(low, high) < ONE_FACTOR or abs(high - low) < RESOLUTION


def similarity(observed: Signature, signature: Signature, *, sized: bool, passed: Collection[str] = ()) -> float:
    """In [0, 1]. `sized`: the fault is one size of many; `passed`: checks of the rung that ran and did not fail."""
    common = [agreement(observed[check], signature[check], sized=sized) for check in observed if check in signature]
    missing, extra = len(set(signature) & set(passed)), len(observed) - len(common)
    return sum(common) / (len(common) + missing + EXTRA * extra) if common else 0.0


def agreement(observed: Traits, recorded: Traits, *, sized: bool) -> float:
    likeness = {"first": _same_place(observed.first, recorded.first), "values": _shared(observed.values, recorded.values)}
    likeness |= {name: _overlap(getattr(observed, name), getattr(recorded, name)) for name in ("kinds", "errors")}
    likeness |= {name: _near(name, getattr(observed, name), getattr(recorded, name), sized) for name in WIDTHS}
    if not (sized and None in (observed.low, recorded.low)):
        likeness["uniform"] = _both(*(is_uniform(one.low, one.high) for one in (observed, recorded)), lambda a, b: float(a == b))
    likeness["over"] = _both(observed.over, recorded.over, lambda a, b: 1 - abs(a - b))
    known = {name: value for name, value in likeness.items() if value is not None}
    return sum(WEIGHTS[name] * value for name, value in known.items()) / (sum(WEIGHTS[name] for name in known) or 1)


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


def _near(name: str, a: float | None, b: float | None, sized: bool) -> float | None:
    """Of one size of many, a factor that only one has is as if neither had: a small effect drowns in rounding."""
    if sized and name in FACTORS and None in (a, b):
        return None
    apart = _factors_apart if name in FACTORS else lambda a, b: abs(a - b)
    least = AT_LEAST[name] if sized else 0.0
    return _both(a, b, lambda a, b: max(least, math.exp(-((apart(a, b) / WIDTHS[name]) ** 2))))


def _factors_apart(a: float, b: float) -> float:
    """As a share of the larger distance from 1: 1 between a factor and none."""
    return abs(a - b) / max(abs(a - 1), abs(b - 1)) if a != b else 0.0


def _decades(value: float | None, digits: int) -> float | None:
    return round(math.log10(value), digits) if value else None


def _rounded(value: float | None) -> float | None:
    """Eight digits: some faults are 2 units in the last place of float32."""
    return None if value is None else float(f"{max(-MOST, min(MOST, value)):.8g}")
