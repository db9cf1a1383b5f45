"""tuning.toml: what was tried on each side before the measurement, and with what budget. A side that nobody tuned is easily beaten.

    [training.reference]
    budget_usd = 40
    chosen = "micro_batch 2, flash attention"
    [[training.reference.tried]]
    settings = "micro_batch 1, eager attention"
    step_ms = 812

and so for [training.port], [serving.reference], [serving.port]; a server's tries have `output_tokens_per_s`.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record
from conformance.gate.values import STACKS

NAME = "tuning.toml"
LEAST = 2  # settings that a side must have tried
BUDGETS = 2.0  # one side's budget may be so many times the other's
SHIFT = 0.2  # by which the measured step may differ from the chosen setting's: it is the tuned setting that must have been timed


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting in the stack's own words, and what came of it."""

    settings: str
    step_ms: float = 0.0
    output_tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Side:
    """`chosen`: the settings of one of `tried`, which were then measured."""

    budget_usd: float
    chosen: str
    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The shortest step; of servers, which have none, the most tokens/s."""
        return min(self.tried, key=lambda one: (one.step_ms, -one.output_tokens_per_s))


@dataclass(frozen=True, slots=True)
class Job:
    """Training, or serving. None: that side has no ledger."""

    reference: Side | None = None
    port: Side | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    training: Job = Job()
    serving: Job = Job()


def read_ledger(path: Path) -> Ledger:
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractError(f"tuning {path}: {error}") from error
    return read_record(Ledger, values, where=f"tuning {path}")


def ledger_reasons(job: str, ledger: Ledger | None) -> Iterator[str]:
    """Why the sides of `job` ("training", "serving") are not known to be tuned alike."""
    if ledger is None:
        yield f"untuned: no tuning ledger ({NAME} beside the measurements, or --tuning): what was tried on each side is not known"
        return
    sides = {stack: getattr(getattr(ledger, job), stack) for stack in STACKS}
    for stack, side in sides.items():
        yield from (f"untuned: {job} of the {stack}: {problem}" for problem in _problems(job, side))
    budgets = [side.budget_usd for side in sides.values() if side]
    if len(budgets) == len(STACKS) and max(budgets) > BUDGETS * min(budgets):
        both = " and ".join(f"${budget:g} ({stack})" for stack, budget in zip(STACKS, budgets, strict=True))
        yield f"one side untuned: {job} had budgets of {both}; {BUDGETS:g} times is allowed"


def _problems(job: str, side: Side | None) -> Iterator[str]:
    if side is None:
        yield f"the ledger has no [{job}] for it: one side only was tuned"
        return
    name = "step_ms" if job == "training" else "output_tokens_per_s"
    if side.budget_usd <= 0:
        yield f"budget_usd = {side.budget_usd:g}; allowed: above 0"
    if len({one.settings for one in side.tried}) < LEAST:
        yield f"{len(side.tried)} settings tried; {LEAST} different ones are needed"
    if any(getattr(one, name) <= 0 for one in side.tried):
        yield f"a try without {name} above 0"
    elif side.tried and side.chosen != side.best.settings:
        yield f"chosen = {side.chosen!r}, but {side.best.settings!r} was better"


def served_reasons(ledger: Ledger | None, measured: dict[str, float]) -> Iterator[str]:
    """`measured`: output tokens/s by stack at its best cell, which the tuned server's must reach: else another one was measured."""
    for stack, rate in measured.items():
        side = ledger and getattr(ledger.serving, stack)
        if side and side.tried and rate < (1 - SHIFT) * side.best.output_tokens_per_s:
            yield (
                f"one side untuned: the {stack}'s server gives {rate:.4g} output tokens/s at best, the tuned one gave "
                f"{side.best.output_tokens_per_s:.4g} ({SHIFT:.0%} less is allowed): another setting was measured"
            )


def measured_reasons(ledger: Ledger | None, measured_ms: dict[str, float]) -> Iterator[str]:
    """`measured_ms`: step time by stack. A side that ran in another setting than its chosen one was not tuned for what was timed."""
    for stack, step_ms in measured_ms.items():
        side = ledger and getattr(ledger.training, stack)
        if side and side.tried and not 1 - SHIFT <= step_ms / (side.best.step_ms or float("inf")) <= 1 + SHIFT:
            yield (
                f"one side untuned: the {stack}'s measured step takes {step_ms:.4g} ms, the tuned one took {side.best.step_ms:.4g} ms "
                f"(within {SHIFT:.0%} is allowed): another setting was timed"
            )
