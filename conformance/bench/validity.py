"""What a cell must keep to be compared: each condition with its verdict and reason."""

from collections.abc import Iterable
from dataclasses import dataclass

from conformance.findings import SEVERITY, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One condition; `said`: what was found, in words. Only PASS lets a cell into a ratio."""

    name: str
    verdict: Verdict
    said: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.name}: {self.said}"


def worst_of(checks: Iterable[Check]) -> Verdict:
    """NOT PROVEN where there is none."""
    verdicts = {check.verdict for check in checks} or {Verdict.NOT_PROVEN}
    return next(verdict for verdict in SEVERITY if verdict in verdicts)


def open_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.verdict is not Verdict.PASS)
