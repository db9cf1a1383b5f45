"""Records a recipe: one function a rung, each writing what docs/bundle.md names for it."""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from conformance.contract.bundle import BundleWriter
from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe
from reference.environment import environment, use_highest_precision
from reference.record_inputs import record_batches, record_tokens
from reference.session import Progress, Session, timed

RUNGS: dict[str, Callable[[Session, BundleWriter], None]] = {
    "tokens": record_tokens,
    "batches": record_batches,
}


def say(line: str, start: float = time.monotonic()) -> None:
    """One progress line on stderr, with the seconds since this process began to record."""
    print(f"[reference {time.monotonic() - start:6.1f} s] {line}", file=sys.stderr, flush=True)


def check_rungs(rungs: Iterable[str] | None) -> tuple[str, ...]:
    """In the ladder's order; an unknown name is refused."""
    chosen = tuple(RUNGS) if rungs is None else tuple(rungs)
    unknown = [rung for rung in chosen if rung not in RUNGS]
    if unknown:
        raise ContractError(f"rung {unknown[0]!r} is not one of {', '.join(RUNGS)}")
    return tuple(rung for rung in RUNGS if rung in chosen)


def record(recipe: Recipe, out: Path, rungs: Iterable[str] | None = None, progress: Progress = say, jobs: int = 1) -> None:
    """Writes the bundle `out`, whole or not at all."""
    chosen = check_rungs(rungs)
    use_highest_precision()
    session = Session(recipe, progress, jobs)
    with BundleWriter(out, stack="reference", recipe=recipe, plan=session.plan) as writer:
        for rung in chosen:
            with timed(progress, rung):
                RUNGS[rung](session, writer)
        writer.manifest(**environment())
