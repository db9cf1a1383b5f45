"""Mutants that compute every number as the original does: listed by hand in equivalent.toml, each with its reason."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.mutants import Mutant
from conformance.contract.toml_records import read_record

FILE = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The function (module:name), its lines before and after with blanks folded, and why nothing can tell them apart."""

    function: str
    before: str
    after: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.before, self.after


def read_equivalents(path: Path = FILE) -> tuple[Equivalent, ...]:
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    return tuple(read_record(Equivalent, entry, where=path.name, prefix="equivalent.") for entry in entries)


def are_equivalent(mutants: tuple[Mutant, ...], equivalents: tuple[Equivalent, ...]) -> set[str]:
    """The ids of those that are listed."""
    listed = {equivalent.key for equivalent in equivalents}
    return {mutant.id for mutant in mutants if mutant.key in listed}
