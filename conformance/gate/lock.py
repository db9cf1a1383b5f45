"""plan.toml: margin and counts, fixed before the data. Its digest covers all of it; measurements made for it name that digest."""

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from conformance.contract.digest import sha256_json
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record
from conformance.contract.whole_text import write_text

VERSION = 1
RUNS = ("launches", "starts")  # as many as planned: who adds one until the bound passes has not one chance in twenty to be wrong


@dataclass(frozen=True, slots=True)
class Training:
    """Of each side."""

    launches: int
    steps: int


@dataclass(frozen=True, slots=True)
class Serving:
    """Of each side; `requests`: of a cell of one start."""

    starts: int
    requests: int


@dataclass(frozen=True, slots=True)
class Lock:
    """`margin` as it is written in claims ("2%"); `pilot`: digests of the manifests that the counts were computed from.

    `claims`: how many are told apart from chance together. `digest`: over everything else.
    """

    version: int
    created: str
    margin: str
    power: float
    claims: int
    pilot: tuple[str, ...]
    training: Training | None = None
    serving: Serving | None = None
    budget_usd: float = 0.0
    expected_usd: float = 0.0
    digest: str = ""

    @property
    def own_digest(self) -> str:
        return sha256_json({name: value for name, value in dataclasses.asdict(self).items() if name != "digest"})

    @property
    def steps(self) -> int | None:
        return self.training and self.training.steps


def lock(unlocked: Lock) -> Lock:
    return dataclasses.replace(unlocked, digest=unlocked.own_digest)


def write_lock(path: Path, locked: Lock) -> Path:
    """Written beside its name and renamed; never over another."""
    if path.exists():
        raise ContractError(f"plan {path}: already there: a lock is not written again; choose another --out")
    values = {name: value for name, value in dataclasses.asdict(locked).items() if value is not None}
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = [_line(name, value) for name, value in values.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(_line(*item) for item in table.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, "\n".join(lines) + "\n")


def _line(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value)}"  # JSON's scalars and lists are TOML's


def read_lock(path: Path) -> Lock:
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractError(f"plan {path}: {error}") from error
    found = read_record(Lock, values, where=f"plan {path}")
    if found.version != VERSION:
        raise ContractError(f"plan {path}: version {found.version}; this suite reads {VERSION}")
    moment(found.created, f"plan {path}: created")
    return found


def moment(text: str, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ContractError(f"{where} = {text!r} is no time such as 2026-11-30T12:00:00+00:00") from error
    if found.tzinfo is None:
        raise ContractError(f"{where} = {text!r} has no time zone, such as +00:00")
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """What the lock must be older than, of one measurement: `counts` by the lock's names; `names`: the lock's digest, as it says."""

    path: Path
    job: str  # training, serving
    started: str
    manifest_sha256: str
    counts: dict[str, int]
    names: str


def lock_reasons(locked: Lock, measured: list[Measured]) -> Iterator[str]:
    if locked.digest != locked.own_digest:
        yield "plan: edited after it was locked: its digest is not that of its content"
    for one in measured:
        yield from (f"plan: {one.path}: {reason}" for reason in _measured_reasons(locked, one))


def _measured_reasons(locked: Lock, one: Measured) -> Iterator[str]:
    if moment(one.started, f"{one.path}: started") <= moment(locked.created, "plan: created"):
        yield f"the lock is younger than the data: locked {locked.created}, measured from {one.started} on"
    if one.names != locked.digest:
        yield f"measured for plan {one.names[:12] or 'none'}, not for this one ({locked.digest[:12]})"
    if one.manifest_sha256 in locked.pilot:
        yield "this is the pilot that the plan was made from: a claim needs data of its own"
    planned = getattr(locked, one.job)
    if planned is None:
        yield f"the plan has no [{one.job}]"
        return
    for name, count in dataclasses.asdict(planned).items():
        if name in RUNS and one.counts[name] != count:
            yield f"{one.counts[name]} {name}; the plan says {count}, no fewer and no more"
        elif one.counts[name] < count:
            yield f"{one.counts[name]} {name}; the plan says at least {count}"
