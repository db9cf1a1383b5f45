"""Progress of a recording: one line at a time on stderr, and which rungs were asked for."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from conformance.contract.errors import ContractError

Progress = Callable[[str], None]


def silent(line: str) -> None:
    """Progress for nobody."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Progress lines of a stack on stderr, with the seconds since `start` (monotonic, common to this machine's processes)."""

    stack: str
    start: float = field(default_factory=time.monotonic)

    def __call__(self, line: str) -> None:
        print(f"[{self.stack} {time.monotonic() - self.start:6.1f} s] {line}", file=sys.stderr, flush=True)


def is_due(step: int, total: int) -> bool:
    """Which of a run's steps are worth a line: five or so, and the last."""
    return step == total or step % max(1, total // 5) == 0


@contextmanager
def timed(progress: Progress, name: str) -> Iterator[None]:
    """Says when `name` begins, when it is done, and how many seconds it took."""
    start = time.monotonic()
    progress(f"{name} ...")
    yield
    progress(f"{name} done in {time.monotonic() - start:.1f} s")


def check_rungs(asked: Iterable[str] | None, known: Iterable[str]) -> tuple[str, ...]:
    """Those asked for (None: all) in the ladder's order; an unknown name is refused."""
    known = tuple(known)
    chosen = known if asked is None else tuple(asked)
    unknown = [rung for rung in chosen if rung not in known]
    if unknown:
        raise ContractError(f"rung {unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(rung for rung in known if rung in chosen)
