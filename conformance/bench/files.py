"""A run on disk: requests.jsonl, one line of raw events a request, and run.json, what else belongs to it. Whole or absent."""

import dataclasses
import os
import shutil
from pathlib import Path

from conformance.bench.arrivals import Schedule
from conformance.bench.bundle_files import parsed
from conformance.bench.events import Record
from conformance.bench.load import Load, Measurement, Target
from conformance.bench.prompts import prompts_digest
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record

VERSION = 2  # 1 sampled the lags of the event loop every 5 ms
REQUESTS, RUN = "requests.jsonl", "run.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What was sent where. Two platforms' runs are compared only when both digests are equal."""

    version: int
    url: str
    model: str
    schedule: str  # kind
    schedule_sha256: str
    prompts_sha256: str
    prompt_tokens: int
    max_tokens: int
    fixed_length: bool
    extra: str  # what else was asked for, as JSON
    requests_sha256: str
    rate_per_s: float | None = None
    concurrency: int | None = None


def write_run(folder: Path, target: Target, load: Load, measurement: Measurement) -> None:
    """FOLDER, written beside and renamed."""
    folder = Path(folder)
    if folder.exists():
        raise ContractError(f"run {folder}: already there; choose a new folder or remove it")
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        (partial / REQUESTS).write_text("".join(canonical_json(_given(record)) + "\n" for record in measurement.records))
        facts = _facts(target, load, load.schedule, sha256_file(partial / REQUESTS))
        run = {"facts": _given(facts), "client": _given(measurement, skip=("records",))}
        (partial / RUN).write_text(canonical_json(run))
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_run(folder: Path) -> tuple[Facts, Measurement]:
    """Exactly what was written: every line and both digests are checked."""
    folder = Path(folder)
    for name in (RUN, REQUESTS):
        if not (folder / name).is_file():
            raise ContractError(f"run {folder}: no {name}: not a run, or it was stopped before it was written")
    run = parsed((folder / RUN).read_text(), folder / RUN)
    if run.get("facts", {}).get("version") != VERSION:
        raise ContractError(f"run {folder}: version {run.get('facts', {}).get('version')!r}; this suite reads {VERSION}")
    facts = read_record(Facts, run["facts"], where=str(folder / RUN), prefix="facts.")
    if sha256_file(folder / REQUESTS) != facts.requests_sha256:
        raise ContractError(f"run {folder}: {REQUESTS} is not the file that was recorded (sha256 differs)")
    lines = enumerate((folder / REQUESTS).read_text().split("\n")[:-1], 1)
    records = tuple(_record(text, f"{folder / REQUESTS}:{number}") for number, text in lines)
    client = read_record(Measurement, run["client"], where=str(folder / RUN), prefix="client.", skip=("records",))
    return facts, dataclasses.replace(client, records=records)


def _record(text: str, where: str) -> Record:
    return read_record(Record, parsed(text, where), where=where)


def _facts(target: Target, load: Load, schedule: Schedule, requests_sha256: str) -> Facts:
    return Facts(
        VERSION, target.url, target.model, schedule.kind, schedule.digest, prompts_digest(load.prompts), load.prompts.shape[1],
        load.max_tokens, load.fixed_length, canonical_json(dict(target.extra)), requests_sha256,
        schedule.rate_per_s, schedule.concurrency,
    )  # fmt: skip


def _given(record, skip: tuple[str, ...] = ()) -> dict:
    """Field -> value, without those that have their default: JSON has no null here."""
    fields = [one for one in dataclasses.fields(record) if one.name not in skip]
    return {one.name: value for one in fields if (value := getattr(record, one.name)) != one.default}
