"""claims.toml: numbers as they are printed, the claims made with them, and the sums that must come out if all are true."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.claims.intervals import Interval, exact, stated
from conformance.contract.errors import ContractError
from conformance.contract.levels import LEVELS
from conformance.contract.schema import RUNGS
from conformance.contract.toml_records import read_record

Metric = Literal[
    "training_time", "training_cost", "ttft_ms", "tpot_ms", "output_tokens_per_s", "cost_per_token", "total_cost", "pass_at_1"
]


@dataclass(frozen=True, slots=True)
class Number:
    """`value` as it is printed: its digits say how far it was rounded. `exact`: a definition or a count, not a measurement."""

    name: str
    value: str
    unit: str
    source: str
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """`stated` is numerator / denominator of `metric` at `cell`, which a measurement must reach (`kind`).

    `cell` of the serving sweep: an input length in tokens ("4096"), one at a rate ("4096 at 4/s"), or a cell's own name.
    """

    name: str
    metric: Metric
    numerator: Literal["reference", "port"]
    denominator: Literal["reference", "port"]
    stated: str
    kind: Literal["at_least", "equal", "at_most"]
    source: str
    cell: str = ""  # of the serving sweep; none: training
    quantity: Literal["ratio", "peak", "highest_rate"] = "ratio"
    rungs: tuple[str, ...] = ()
    levels: tuple[str, ...] = ("L1", "L2")
    winner: Literal["reference", "port"] = "port"  # whom a ratio away from 1 is said to favour
    percentile: Literal["p50", "p90", "p95", "p99"] = "p50"  # of a latency
    margin: str = ""  # of `equal`: "2%" is within 2 % of the stated value, either way
    serving_hours: float = 0.0  # of `total_cost`
    slo_ttft_ms: float = 0.0  # of `highest_rate`: what the percentile of each start must keep; 0: no limit
    slo_tpot_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """`left` `must` `right`, expressions of numbers. `physical`: a violated bound of the hardware is IMPOSSIBLE."""

    about: str
    left: str
    must: Literal["equal", "be at least", "be at most"]
    right: str
    source: str
    physical: bool = False


@dataclass(frozen=True, slots=True)
class ClaimsFile:
    path: Path
    numbers: dict[str, Number]
    claims: tuple[Claim, ...]
    sums: tuple[Sum, ...]

    def intervals(self) -> dict[str, Interval]:
        return {name: _interval(number, self.path) for name, number in self.numbers.items()}


def _interval(number: Number, path: Path) -> Interval:
    value = stated(number.value, f"{path}: number {number.name}")
    return exact(value.middle) if number.exact else value


RECORDS = {"number": Number, "claim": Claim, "sum": Sum}


def read_claims(path: Path) -> ClaimsFile:
    try:
        values = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ContractError(f"claims {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ContractError(f"claims {path}: not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"claims {path}: not TOML: {error}") from error
    for key in values:
        if key not in RECORDS:
            raise ContractError(f"claims {path}: unknown table {key!r}; allowed: {', '.join(f'[[{name}]]' for name in RECORDS)}")
        if not isinstance(values[key], list):
            raise ContractError(f"claims {path}: {key} = {values[key]!r}; allowed: tables, [[{key}]]")
    where = f"claims {path}"
    numbers, claims, sums = (
        tuple(read_record(record, one, where=where, prefix=f"{key}[{index}].") for index, one in enumerate(values.get(key, [])))
        for key, record in RECORDS.items()
    )
    _check(path, numbers, claims)
    return ClaimsFile(path, {number.name: number for number in numbers}, claims, sums)


def _check(path: Path, numbers: tuple[Number, ...], claims: tuple[Claim, ...]) -> None:
    for kind, found in (("number", numbers), ("claim", claims)):
        names = [one.name for one in found]
        for name in names:
            if names.count(name) > 1:
                raise ContractError(f"claims {path}: two of [[{kind}]] are called {name!r}")
    for claim in claims:
        if claim.numerator == claim.denominator:
            raise ContractError(f"claims {path}: claim {claim.name!r} has {claim.numerator} over itself")
        for name, allowed in (*((rung, RUNGS) for rung in claim.rungs), *((level, tuple(LEVELS)) for level in claim.levels)):
            if name not in allowed:
                raise ContractError(f"claims {path}: claim {claim.name!r}: {name!r} is not one of {', '.join(allowed)}")
