"""The judge of one check: takes measurements, keeps the worst, and turns it into a finding."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.causes import Cause, in_numbers, likely_causes
from conformance.compare import ErrorShape
from conformance.findings import CONTROL, Finding, Verdict, factor, kind_of

MOST_ERROR = 1e9  # an error that is not finite counts as so many times the limit
LIKELY = 3  # causes that a failure names by itself


class NotEqual(AssertionError):
    """A check failed; the message says what, where, expected, got and how much of the limit was used."""


@dataclass(frozen=True, slots=True)
class Measurement:
    where: str
    measured: float
    limit: float
    expected: str
    got: str
    shape: ErrorShape = field(default_factory=ErrorShape)
    is_control: bool = False  # a control shows that the check can see: how far it is beyond its least says nothing of the port

    @property
    def used(self) -> float:
        """Share of the limit; any difference of an exact check is infinitely over."""
        if self.limit == 0:
            return float("inf") if self.measured else 0.0
        return self.measured / self.limit


@dataclass(slots=True)
class Judge:
    """Measurements of one check. `promise` is the first line of the test's docstring."""

    rung: str
    check: str
    promise: str
    unit: str = "differences"
    kind: str = "exact"
    measurements: list[Measurement] = field(default_factory=list)
    inconclusive: str = ""

    def same(self, where: str, got: object, expected: object) -> None:
        """Exact: `got` equals `expected` (values, lists, arrays bit for bit)."""
        count, got_text, expected_text = _differences(got, expected)
        times = factor(got, expected)
        times = factor(got_text, expected_text) if times is None else times
        self.measurements.append(Measurement(where, count, 0, expected_text, got_text, ErrorShape(times)))

    def within(
        self, where: str, measured: float, limit: float, *, expected: object = "", got: object = "", shape: ErrorShape | None = None
    ) -> None:
        """`measured` is at most `limit`. NaN is never within. `shape`: of arrays' difference, of which the texts show nothing."""
        measured = float(measured) if np.isfinite(measured) else float("inf")
        shape = ErrorShape(factor(expected=expected, got=got)) if shape is None else shape
        self.measurements.append(Measurement(where, measured, float(limit), _text(expected), _text(got), shape))

    def above(self, where: str, measured: float, least: float, *, expected: object = "", got: object = "") -> None:
        """`measured` is at least `least`: how a negative control shows that the check can see. Judged as least / measured."""
        ratio = least / measured if measured > 0 else float("inf")
        text = (_text(expected) or f"at least {least:.4g}", _text(got) or f"{measured:.4g}")
        self.measurements.append(Measurement(where, ratio, 1.0, *text, is_control=True))

    def at_least(self, where: str, count: int, least: int) -> None:
        """Exact: `count` things were seen, `least` were to be; a sharp bound, so no share of it is used up."""
        self.measurements.append(Measurement(where, max(0, least - count), 0, f"at least {least}", str(count)))

    def measure_in(self, unit: str, kind: str = "full") -> None:
        self.unit, self.kind = unit, kind

    @property
    def has_failed(self) -> bool:
        return any(one.used > 1 for one in self.measurements)

    @property
    def finding(self) -> Finding:
        if not self.measurements:
            return self._finding(Verdict.FAIL, reason="the check compared nothing")
        top = max(self.measurements, key=lambda one: (one.used > 1, not one.is_control, one.used))
        verdict = Verdict.PASS if top.used <= 1 else Verdict.FAIL
        if verdict is Verdict.PASS and self.inconclusive:
            verdict = Verdict.INCONCLUSIVE
        values = dict(measured=min(top.measured, 1e300), limit=top.limit, where=top.where, expected=top.expected, got=top.got)
        values |= _of_those_over([one for one in self.measurements if one.used > 1])
        kind = CONTROL if top.is_control else self.kind
        return self._finding(verdict, reason=self.inconclusive, kind=kind, **values)

    def _finding(self, verdict: Verdict, **values) -> Finding:
        head = dict(rung=self.rung, check=self.check, promise=self.promise, unit=self.unit, kind=self.kind)
        return Finding(verdict=verdict, compared=len(self.measurements), **head | values)

    def conclude(self, earlier: Iterable[Finding] = ()) -> Finding:
        """The finding; raises `NotEqual` when the check failed. `earlier`: findings of the session so far, which its causes go by."""
        finding = self.finding
        if finding.verdict is Verdict.FAIL:
            raise NotEqual(explain(finding, [*earlier, finding]))
        return finding


def explain(finding: Finding, findings: Iterable[Finding] = ()) -> str:
    """A failure for people: promise, place, expected, got, share of the limit. `findings`: of the session so far."""
    used = "" if finding.used_percent is None else f" ({finding.used_percent:.0f} % of the limit)"
    measured = "nothing" if finding.measured is None else f"{finding.measured:.6g}"
    limit = "" if finding.limit is None else f", limit {finding.limit:.6g} {finding.unit}{used}"
    lines = [
        f"{finding.rung}: {finding.promise}",
        f"  where:     {finding.where or 'everywhere'}",
        f"  measured:  {measured}{limit}",
        f"  first:     {finding.first}; {finding.over} of {finding.compared} are over the limit" if finding.over else "",
        f"  expected:  {finding.expected}",
        f"  got:       {finding.got}",
        f"  {finding.reason}" if finding.reason else "",
        *_likely(finding, likely_causes(finding, findings)[:LIKELY]),
        f"  reproduce: parity check --only {finding.rung}  (all causes: parity explain {finding.rung})",
    ]
    return "\n".join(line for line in lines if line)


def _of_those_over(over: list[Measurement]) -> dict:
    """What diagnosis goes by: the first place, how many and how far they are over by kind of place, and by which factors."""
    if not over:
        return {}
    errors: Counter = Counter()
    for one in over:
        errors[kind_of(one.where)] += min(one.used if one.limit else one.measured, MOST_ERROR)
    factors = [one.shape.times for one in over if one.shape.is_factor]
    return dict(
        first=over[0].where, over=len(over), kinds=dict(Counter(kind_of(one.where) for one in over)), errors=dict(errors),
        low=min(factors, default=None), high=max(factors, default=None), along=over[0].shape.along, spread=over[0].shape.spread,
    )  # fmt: skip


def _likely(finding: Finding, causes: Sequence[Cause]) -> list[str]:
    """The first with the numbers that it rests on; whether a planted fault looks like this is said before anything else."""
    numbers = in_numbers(finding)
    alike = [f" ({cause.how_alike})" if cause.how_alike else "" for cause in causes]
    lines = [f"  likely:    {one.cause} Where: {one.seam}. Mend: {one.mend}{how}" for one, how in zip(causes, alike, strict=True)]
    if numbers and lines:
        lines[0] = lines[0].replace("likely:    ", f"likely:    {numbers}: ", 1)
    if not any(cause.is_close for cause in causes):
        lines.insert(0, "  likely:    this matches no planted fault closely; what is known of the rung:")
    return lines


def _differences(got: object, expected: object) -> tuple[float, str, str]:
    """(number of differing places, got there, expected there)."""
    if isinstance(got, np.ndarray) and isinstance(expected, np.ndarray):
        return _array_differences(got, expected)
    if got == expected and type(got) is type(expected):
        return 0, _text(got), _text(expected)
    if isinstance(got, Sequence) and isinstance(expected, Sequence) and not isinstance(got, str):
        return _list_differences(list(got), list(expected))
    if isinstance(got, set) and isinstance(expected, set):
        return len(got ^ expected), f"extra: {sorted(got - expected)[:3]}", f"missing: {sorted(expected - got)[:3]}"
    return 1, *_told_apart(got, expected)


def _told_apart(got: object, expected: object) -> tuple[str, str]:
    """Both in few digits, or in all where those are the same."""
    short = _text(got), _text(expected)
    return short if short[0] != short[1] else (repr(got), repr(expected))


def _array_differences(got: np.ndarray, expected: np.ndarray) -> tuple[float, str, str]:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return 1, f"{got.dtype}{list(got.shape)}", f"{expected.dtype}{list(expected.shape)}"
    unequal = np.argwhere(np.atleast_1d(got != expected))
    if not len(unequal):
        return 0, "", ""
    place = tuple(int(i) for i in unequal[0])
    return len(unequal), f"{np.atleast_1d(got)[place]} at {list(place)}", f"{np.atleast_1d(expected)[place]}"


def _list_differences(got: list, expected: list) -> tuple[float, str, str]:
    if len(got) != len(expected):
        return abs(len(got) - len(expected)), f"{len(got)} items", f"{len(expected)} items"
    unequal = [index for index, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
    if not unequal:
        return 0, _text(got), _text(expected)
    return len(unequal), f"[{unequal[0]}]: {_text(got[unequal[0]])}", f"[{unequal[0]}]: {_text(expected[unequal[0]])}"


def _text(value: object) -> str:
    """In the same words in every process: a set's own order is that of hashes, and findings have a digest."""
    if isinstance(value, set):
        text = "{" + ", ".join(sorted(map(repr, value))) + "}"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 160 else text[:157] + "..."
