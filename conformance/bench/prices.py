"""prices.toml: what an hour of a machine costs, with source and date."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record

if TYPE_CHECKING:  # scipy takes half a second, and every command line knows where the prices are
    from conformance.bench.intervals import Interval

PRICES = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Price:
    """Of a whole machine."""

    usd_per_hour: float
    source: str
    date: str


def read_prices(path: Path = PRICES) -> dict[str, Price]:
    """Machine -> price."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractError(f"{path}: {error}") from error
    return {name: read_record(Price, table, where=str(path), prefix=f"{name}.") for name, table in tables.items()}


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    return usd_per_hour / (3600 * tokens_per_s) * 1e6


def cost_of(rate: Interval, usd_per_hour: float) -> Interval:
    """US dollars per million tokens of a rate in tokens/s; the ends of the interval change places."""
    value, low, high = (one and usd_per_million(usd_per_hour, one) for one in (rate.value, rate.high, rate.low))
    return replace(rate, value=value, low=low, high=high)
