"""How to reproduce it: the commands that gave these bundles and measurements, from what their manifests say."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.bench.training.measurements import TrainingMeasurements
from conformance.contract.bundle import Bundle
from conformance.report.measured import Measured

if TYPE_CHECKING:
    from conformance.bench.measurements import Measurements

RECIPE = "recipe.toml"
PEERS = {"reference": "port", "port": "reference"}


@dataclass(frozen=True, slots=True)
class Command:
    """`name`: on which machine, with which versions."""

    name: str
    line: str


def commands(reference: Bundle | None, port: Bundle | None, measured: Measured) -> Iterator[Command]:
    """In the order in which they are run. Paths are those of a reviewer's package."""
    bundles = [bundle for bundle in (reference, port) if bundle is not None]
    for bundle in bundles:
        yield Command(_machine(bundle), _line("parity", "record", bundle.stack, "--recipe", RECIPE, "--out", bundle.stack))
    for bundle in bundles:
        if bundle.exchanged:
            peer = PEERS[bundle.stack]
            yield Command(_machine(bundle), _line("parity", "exchange", bundle.stack, "--bundle", bundle.stack, "--peer", peer))
    for bundle in bundles:
        if command := _server(bundle):
            yield Command(f"{bundle.stack}'s server", command)
    for stack, training in measured.trainings:
        yield _training(stack, training)
    for number, (_, sweep) in enumerate(measured.sweeps, 1):
        yield from _sweep(sweep, number)
    given = ("--recipe", RECIPE, *_bundles(bundles))
    yield Command("anywhere", _line("parity", "check", *given, "--out", "parity-out"))
    folders = [*(f"time-{stack}" for stack, _ in measured.trainings), *(f"sweep-{i}" for i in range(1, len(measured.sweeps) + 1))]
    if folders:
        yield Command("anywhere", _line("parity", "gate", "--claims", "claims.toml", *given, "--measurements", *folders))


def _bundles(bundles: list[Bundle]) -> list[str]:
    return [word for bundle in bundles for word in (f"--{bundle.stack}-bundle", bundle.stack)]


def _machine(bundle: Bundle) -> str:
    """Versions are in the table of the environment; here is where it ran."""
    return f"{bundle.stack}: {bundle.manifest.get('device', 'device not recorded')}"


def _server(bundle: Bundle) -> str:
    """As the rung *serving* recorded it."""
    lines = bundle.lines("serving", "server") if bundle.has("serving") else []
    return next((line["value"] for line in lines if line["serves"] == "merged" and line["setting"] == "command"), "")


def _training(stack: str, one: TrainingMeasurements) -> Command:
    manifest = one.manifest
    counts = {"--launches": manifest.launches, "--steps": manifest.steps, "--warm-up": manifest.warm_up}
    options = [word for name, value in counts.items() for word in (name, str(value))]
    machine = ["--machine", manifest.machine] if manifest.machine else []
    line = _line("parity", "bench", "--side", stack, "--recipe", RECIPE, *options, *machine, "--out", f"time-{stack}")
    return Command(f"{stack}: {manifest.machine or manifest.platform}", line)


def _sweep(sweep: Measurements, number: int) -> Iterator[Command]:
    subject = sweep.manifest.subject
    about = {"--platform": subject.platform, "--machine": subject.machine, "--replicates": str(sweep.manifest.replicates)}
    options = [word for name, value in about.items() if value for word in (name, value)]
    where = f"sweep {number}: {subject.machine or subject.platform or 'machine not stated'}"
    given = ("--checkpoint", "merged", "--cells", "cells.toml")
    yield Command(where, _line("parity", "sweep", *given, *options, "--out", f"sweep-{number}"))
    for argv in sorted(_servers(sweep)):
        yield Command(f"{where}, its server", argv)


def _servers(sweep: Measurements) -> set[str]:
    found = {
        tuple(sweep.server(replicate, sweep.record(replicate, cell).server).get("argv", ()))
        for replicate in sweep.replicates
        for cell in sweep.plan.cells
        if sweep.has(replicate, cell)
    }
    return {shlex.join(argv) for argv in found if argv}


def _line(*words: str) -> str:
    return shlex.join(words)
