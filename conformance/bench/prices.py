"""prices.toml: what an hour of a machine costs, with source and date."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.toml_records import read_record

PRICES = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Price:
    """Of a whole machine."""

    usd_per_hour: float
    source: str
    date: str


def read_prices(path: Path = PRICES) -> dict[str, Price]:
    """Machine -> price."""
    tables = tomllib.loads(path.read_text())
    return {name: read_record(Price, table, where=str(path), prefix=f"{name}.") for name, table in tables.items()}
