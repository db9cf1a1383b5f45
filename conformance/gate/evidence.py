"""Everything that a claim is held against: bundles judged again, measurements opened and assigned to sides, prices, ledger, lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.bench.bundle_files import MANIFEST, read_json
from conformance.bench.prices import PRICES
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import KIND, OK
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.gate import training
from conformance.gate.costs import Prices, open_prices
from conformance.gate.lock import Lock, Measured, lock_reasons, read_lock
from conformance.gate.proof import Files, Proof, certificate_reasons, prove, unlike
from conformance.gate.training import Trainings
from conformance.gate.tuning import NAME as LEDGER
from conformance.gate.tuning import Ledger, read_ledger

if TYPE_CHECKING:  # aiohttp and prometheus_client come with the extra `serving` alone: imported where a sweep is given
    from conformance.bench.measurements import Measurements
    from conformance.gate.serving import Sweeps


@dataclass(frozen=True, slots=True)
class Given:
    """Paths as they are given to `parity gate`."""

    pairs: tuple[Files, ...] = ()
    measurements: tuple[Path, ...] = ()
    certificates: tuple[Path, ...] = ()
    prices: Path = PRICES
    tuning: Path | None = None
    plan: Path | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """`sweeps` None: none were given. `general`: reasons that withhold every claim; `platforms`: those that were measured on."""

    proofs: tuple[Proof, ...]
    trainings: Trainings
    sweeps: Sweeps | None
    prices: Prices
    ledger: Ledger | None
    lock: Lock | None
    general: tuple[str, ...]

    @property
    def platforms(self) -> set[str]:
        trained = {one.manifest.platform for one in self.trainings.by_stack.values()}
        return trained | ({one.manifest.subject.platform for one in self.sweeps.by_stack.values()} if self.sweeps else set())


def gather(given: Given) -> Evidence:
    """Paths that are not there are bad input; what is there and does not hold is a reason."""
    lock = read_lock(given.plan) if given.plan else None
    prices = open_prices(given.prices)
    trained, swept, damaged = open_measurements(given.measurements)
    proofs = tuple(prove(files) for files in given.pairs)
    wrong = [reason for path in given.certificates for reason in certificate_reasons(proofs, path)]
    return weigh(proofs, trained, swept, Evidence(
        (), Trainings({}, ()), None, prices, _ledger(given), lock, (*damaged, *wrong),
    ))  # fmt: skip


def weigh(
    proofs: Sequence[Proof], trained: Sequence[TrainingMeasurements], swept: Sequence[Measurements], start: Evidence
) -> Evidence:
    """`start` with measurements that are held against the proofs, and the lock against the measurements."""
    general = [*start.general, *unlike(proofs)]
    if start.lock:
        try:
            general += lock_reasons(start.lock, [*map(_trained, trained), *map(_swept, swept)])
        except ContractError as error:
            general.append(str(error))
    trainings = training.assign(trained, proofs, start.lock.steps if start.lock else None)
    return replace(start, proofs=tuple(proofs), trainings=trainings, sweeps=_sweeps(swept, proofs), general=tuple(general))


def open_measurements(paths: Sequence[Path]) -> tuple[list[TrainingMeasurements], list[Measurements], list[str]]:
    """(of training, of serving, why others could not be opened)"""
    trained, swept, damaged = [], [], []
    for path in paths:
        if not (path / MANIFEST).is_file():
            raise ContractError(f"measurements {path}: no {MANIFEST} in it")
        try:
            if read_json(path / MANIFEST).get("kind") == KIND:
                trained.append(one := TrainingMeasurements(path))
                _ = one.launches
            else:
                swept.append(_open_sweep(path))
        except ContractError as error:
            damaged.append(str(error))
    return trained, swept, damaged


def _open_sweep(path: Path) -> Measurements:
    try:
        from conformance.bench.measurements import Measurements
    except ModuleNotFoundError as error:
        raise ContractError(f"measurements {path}: {error.name} is not installed: pip install 'tpu-parity[serving]'") from error
    return Measurements(path)


def _sweeps(swept: Sequence[Measurements], proofs: Sequence[Proof]) -> Sweeps | None:
    """Held against the highest level: that of the claimed recipe."""
    if not swept:
        return None
    from conformance.gate.serving import assign

    opened = [proof for proof in proofs if proof.pair]
    return assign(swept, max(opened, key=lambda proof: proof.level.name, default=None))


def _ledger(given: Given) -> Ledger | None:
    path = ledger_path(given)
    return read_ledger(path) if path else None


def ledger_path(given: Given) -> Path | None:
    """As named, or beside the measurements."""
    beside = sorted({path.resolve().parent / LEDGER for path in given.measurements})
    found = [given.tuning] if given.tuning else [path for path in beside if path.is_file()]
    if len(found) > 1:
        raise ContractError(f"tuning: {found[0]} and {found[1]} both lie beside measurements: name one with --tuning")
    return found[0] if found else None


def _trained(one: TrainingMeasurements) -> Measured:
    counts = {"launches": sum(launch.outcome == OK for launch in one.launches), "steps": one.manifest.steps}
    started = min((one.manifest.started, *(launch.started for launch in one.launches)))
    return Measured(one.path, "training", started, sha256_file(one.path / MANIFEST), counts, one.manifest.lock_sha256)


def _swept(one: Measurements) -> Measured:
    requests = [cell.requests for cell in one.plan.cells if cell.mode == "open"] or [cell.requests for cell in one.plan.cells]
    counts = {"starts": one.manifest.replicates, "requests": min(requests)}
    return Measured(one.path, "serving", one.manifest.started, sha256_file(one.path / MANIFEST), counts, one.manifest.lock_sha256)
