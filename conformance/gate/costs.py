"""What an hour of a claim's machines costs: from prices.toml, each price with a source and a date, or no dollars at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from conformance.bench.prices import PRICES, Price, read_prices
from conformance.contract.errors import ContractError

SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Prices:
    """`problem`: why none could be read."""

    by_machine: dict[str, Price]
    problem: str = ""

    def reasons(self, machine: str) -> Iterator[str]:
        """Why this machine's hours have no dollars."""
        price = self.by_machine.get(machine)
        if self.problem:
            yield self.problem
        elif price is None:
            yield f"no price for machine {machine!r}; known: {', '.join(self.by_machine)}"
        else:
            yield from (f"price of {machine}: {problem}" for problem in _problems(price))

    def usd(self, machine: str, seconds: float) -> float:
        return self.by_machine[machine].usd_per_hour * seconds / SECONDS

    def note(self, machine: str) -> str:
        price = self.by_machine[machine]
        return f"{machine}: ${price.usd_per_hour:g} an hour ({price.source}, {price.date})"


def open_prices(path: Path = PRICES) -> Prices:
    """A file that is not there is bad input; one whose prices are not whole is a reason."""
    if not Path(path).is_file():
        raise ContractError(f"prices {path}: no such file")
    try:
        return Prices(read_prices(path))
    except ContractError as error:
        return Prices({}, f"prices: {error}")


def _problems(price: Price) -> Iterator[str]:
    if not price.usd_per_hour > 0:
        yield f"usd_per_hour = {price.usd_per_hour:g}; allowed: above 0"
    if not price.source.strip():
        yield "no source"
    try:
        day = date.fromisoformat(price.date)
    except ValueError:
        yield f"date = {price.date!r}: undated; allowed: a day such as 2026-11-30"
        return
    if day > datetime.now(UTC).date():
        yield f"date = {price.date}: in the future"
