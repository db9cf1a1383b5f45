"""Launches a stack as often as planned, one process after the other, and keeps what each has written."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.bench.prices import Price
from conformance.bench.speed_of_light import Machine
from conformance.bench.training.folder import TrainingFolder, process_identity, read_facts, under_way
from conformance.bench.training.measurements import read_steps
from conformance.bench.training.records import FAILED, INTERRUPTED, OK, RECIPE, Launch
from conformance.children import POLL_S, Child, command_child, stack_child
from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan
from conformance.contract.progress import Progress, silent
from conformance.contract.timed_steps import STEPS, StackFacts, now_ns, planned_step

Command = Callable[[list[str]], Child]  # a process to be, for the arguments of a launch


@dataclass(frozen=True, slots=True)
class Launcher:
    """`command`: --recipe R --out DIR --steps N --seed S are its arguments, and it writes DIR as timed_steps.py says."""

    folder: TrainingFolder
    command: Command
    progress: Progress = silent

    def run(self) -> None:
        """Every launch that is left. KeyboardInterrupt leaves all that there is in the bundle.

        A failed launch is none of the others' concern, unless none has been whole yet: then it is a `ContractError`.
        """
        while self.folder.left:
            number = self.folder.next_number
            self.progress(f"launch {number}: {self.folder.left} left of {self.folder.manifest.launches}")
            launch = self._launch(number)
            self.progress(f"launch {number}: {launch.outcome}{launch.reason and ': ' + launch.reason} after {seconds_of(launch):.0f} s")
            if self.folder.left and self.folder.whole:
                self.progress(f"what is left takes {_hours(self.folder, None)[1]}")
            if launch.outcome == FAILED and not self.folder.whole:
                raise ContractError(f"launch {number} failed, none was whole before; it stays in {self.folder.path}: {launch.reason}")

    def _launch(self, number: int) -> Launch:
        manifest = self.folder.manifest
        counted = manifest.launches - self.folder.left
        launch = under_way(number, self.folder.recipe.seeds.dropout + counted)
        out = self.folder.open(launch)
        recipe, steps, seed = self.folder.path / RECIPE, str(manifest.steps), str(launch.seed)
        child = self.command(["--recipe", str(recipe.resolve()), "--out", str(out.resolve()), "--steps", steps, "--seed", seed])
        launch, reason = self._run(child, launch)
        facts, problem = self._examined(out) if not reason else (None, "")
        launch = replace(launch, outcome=FAILED if reason or problem else OK, reason=reason or problem)
        if facts:
            launch = replace(
                launch, compile_s=facts.compile_s, peak_memory_bytes=facts.peak_memory_bytes, memory_of=facts.memory_of
            )  # fmt: skip
        self.folder.add(launch, None if problem else facts)
        return launch

    def _run(self, child: Child, launch: Launch) -> tuple[Launch, str]:
        """(the launch with its process and end, why it failed or nothing)"""
        launch, reason = replace(launch, spawned_ns=now_ns()), ""
        try:
            child.start()
        except ContractError as error:
            return replace(launch, ended_ns=now_ns()), str(error)
        try:
            launch = replace(launch, process=process_identity(child.pid))
            self.folder.open(launch)
            while not child.has_ended():
                time.sleep(POLL_S)
        except ContractError as error:
            reason = str(error)
        except KeyboardInterrupt:
            child.stop()
            self.folder.add(replace(launch, outcome=INTERRUPTED, reason="stopped by hand", ended_ns=now_ns()))
            raise
        finally:
            child.stop()
        return replace(launch, ended_ns=now_ns()), reason

    def _examined(self, out: Path) -> tuple[StackFacts | None, str]:
        """What a process that ended well says of itself, and what is wrong with what it wrote."""
        try:
            facts, steps = read_facts(out), read_steps(out / STEPS)
        except ContractError as error:
            return None, str(error)
        if facts is None or len(steps) != self.folder.manifest.steps:
            return facts, f"it wrote {len(steps)} steps of {self.folder.manifest.steps}" + ("" if facts else " and no stack.json")
        return facts, self.folder.problem_of(facts)


def launch_command(side: str, stack: str, foreign: str | None, here: Path) -> Command:
    """Our own stack, or any command."""
    if foreign is None:
        return lambda arguments: stack_child(side, [stack, "bench", *arguments], quotes=True)
    return lambda arguments: command_child(side, foreign, arguments, here)


def seconds_of(launch: Launch) -> float:
    return (launch.ended_ns - launch.spawned_ns) / 1e9


def overview(folder: TrainingFolder, plan: Plan, machine: Machine | None, price: Price | None) -> Iterator[str]:
    """What will run, how long, for how many dollars."""
    manifest = folder.manifest
    left, where = folder.left, manifest.machine or "this machine"
    planned = [planned_step(plan, step) for step in plan.steps[: manifest.steps]]
    tokens, targets = (sum(one[name] for one in planned) for name in ("input_tokens", "tokens"))
    yield f"{manifest.stack} on {where}: {left} of {manifest.launches} launches are left"
    yield f"each has {manifest.steps} steps with {tokens} tokens, {targets} of them in the loss"
    hours, said = _hours(folder, machine)
    yield f"that takes {said}"
    if price is None:
        yield f"no price: {where} is not in prices.toml"
    else:
        per_hour = f"${price.usd_per_hour:.2f} an hour ({price.source}, {price.date})"
        yield per_hour + ("" if hours is None else f": {'at least ' if not folder.whole else ''}${hours * price.usd_per_hour:.2f}")


def _hours(folder: TrainingFolder, machine: Machine | None) -> tuple[float | None, str]:
    """Of what is left: by the launches so far, else the least that the arithmetic takes."""
    if folder.whole:
        hours = folder.left * statistics.mean(map(seconds_of, folder.whole)) / 3600
        return hours, f"about {hours:.2f} h by the launches so far"
    if machine is None:
        return None, "a time that is not known before the first launch: no machine with a peak is given (--machine)"
    hours = folder.left * sum(folder.manifest.flop) / machine.flop_per_s / 3600
    return hours, f"at least {hours:.2f} h: so long takes the arithmetic of the recipe's tokens at the machine's peak"
