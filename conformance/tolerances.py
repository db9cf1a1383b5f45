"""The one table of factors and limits: read from tolerances.toml, printed as docs/tolerances.md."""

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("tolerances.toml")


@dataclass(frozen=True, slots=True)
class Tolerance:
    value: float
    unit: str
    reason: str


def read_tolerances(path: Path = FILE) -> dict[str, Tolerance]:
    return {name: Tolerance(**entry) for name, entry in tomllib.loads(path.read_text()).items()}


def as_markdown(tolerances: dict[str, Tolerance]) -> str:
    """The table of docs/tolerances.md."""
    cells = [(f"`{name}`", f"{one.value:g}", one.unit, one.reason) for name, one in tolerances.items()]
    rows = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]
    head = "# Tolerances\n\nGenerated from `conformance/tolerances.toml` by `python -m conformance.tolerances`.\n\n"
    return head + "| name | value | unit | reason |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown(read_tolerances()))
