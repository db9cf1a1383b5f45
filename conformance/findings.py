"""A finding: one check's promise, what was measured, the limit, and the verdict."""

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from conformance.contract.digest import canonical_json
from conformance.contract.schema import RUNGS
from conformance.contract.whole_text import write_text


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_PROVEN = "NOT PROVEN"  # skipped, not built, no hardware, or an earlier rung failed


# One number alone, at one place of a list or array, as a count of items, or as the length of an array.
NUMBER = re.compile(r"(?:\[\d+\]: |\w+\[)?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?: items|\]| at \[[\d, ]*\])?", re.IGNORECASE)
WORD, DIGEST = re.compile(r"\b[A-Za-z]\w*"), re.compile(r"\b[0-9a-f]{16,}\b")
SAY_NOTHING = ("port", "reference", "model", "language_model", "layers")  # either stack's; the start of tensors' names
CONTROL = "control"  # kind of a finding whose worst measurement is a negative control
# Worst first: a rung's verdict is the worst of its checks.
SEVERITY = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.NOT_PROVEN, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Finding:
    """`measured` and `limit` are in `unit`; exact checks have limit 0 and count differences. `where` is the worst place."""

    rung: str
    check: str
    promise: str
    verdict: Verdict
    measured: float | None = None
    limit: float | None = None
    unit: str = ""
    kind: str = "exact"  # how it was recorded: exact, full, sampled, sketch; or a control
    where: str = ""
    expected: str = ""
    got: str = ""
    reason: str = ""  # why NOT PROVEN or INCONCLUSIVE
    compared: int = 0  # how many values, tensors or lines went into it
    level: str = "L0"
    first: str = ""  # the first place over its limit, in the check's own order
    over: int = 0  # how many of those compared are over theirs
    kinds: dict[str, int] = field(default_factory=dict)  # how many are over by kind of place (`kind_of`)
    errors: dict[str, float] = field(default_factory=dict)  # sum of the shares of the limit (exact: of the differences) by kind
    low: float | None = None  # the smallest and the largest got / expected of places over the limit
    high: float | None = None
    along: float | None = None  # shape of the error at the first place over its limit (compare.ErrorShape)
    spread: float | None = None

    @property
    def used_percent(self) -> float | None:
        """Measured value as a share of its limit; None for exact checks, passed controls, and where nothing was measured."""
        if self.measured is None or not self.limit or (self.kind == CONTROL and self.verdict is Verdict.PASS):
            return None
        return 100 * self.measured / self.limit


def kind_of(place: str) -> str:
    """A place without its numbers and without the stack: a fault may lie in either. "layer (full_attention) mlp"."""
    return " ".join(word for word in WORD.findall(DIGEST.sub("", place)) if word not in SAY_NOTHING)


def factor(got: object, expected: object) -> float | None:
    """got / expected of numbers or their texts; infinite where nothing was expected; None for 0 / 0 and where one is no number."""
    numbers = [NUMBER.fullmatch(str(value)) for value in (got, expected)]
    if not all(numbers):
        return None
    a, b = (float(number[1]) for number in numbers)
    return a / b if b else (math.copysign(math.inf, a) if a else None)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """NOT PROVEN when there is none at all."""
    found = set(verdicts) or {Verdict.NOT_PROVEN}
    return next(verdict for verdict in SEVERITY if verdict in found)


def rung_verdicts(findings: Iterable[Finding]) -> dict[str, Verdict]:
    """Verdict of every rung of the ladder, in order."""
    findings = list(findings)
    return {rung: worst(finding.verdict for finding in findings if finding.rung == rung) for rung in RUNGS}


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """JSON Lines, one finding a line, written beside and renamed."""
    write_text(path, "".join(canonical_json(dataclasses.asdict(finding)) + "\n" for finding in findings))


def read_findings(path: Path) -> list[Finding]:
    values = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [Finding(**value | {"verdict": Verdict(value["verdict"])}) for value in values]
