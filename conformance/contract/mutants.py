"""A mutant: one small edit of one function of the port, made by a rule and a seed, with no fault in mind."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """`start` and `end` are byte offsets in the file of `module`; what lies between becomes `new`."""

    id: str
    module: str  # tpu_impl.data
    function: str  # collate, or Trainer._step: what is planted; functions inside it belong to it
    operator: str  # the rule that made it
    line: int
    start: int
    end: int
    new: str
    before: str  # the lines as they are, blanks folded
    after: str  # the lines as they become

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is, wherever its lines stand."""
        return f"{self.module}:{self.function}", self.before, self.after

    @property
    def place(self) -> str:
        return f"{self.module.replace('.', '/')}.py:{self.line}"


def mutated(source: bytes, mutant: Mutant) -> bytes:
    return source[: mutant.start] + mutant.new.encode() + source[mutant.end :]


def source_of(module: str, root: Path) -> bytes:
    return (root / (module.replace(".", "/") + ".py")).read_bytes()
