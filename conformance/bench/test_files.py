"""A run on disk reads back exactly, or is refused."""

import dataclasses
import json

import numpy as np
import pytest

from conformance.bench.arrivals import burst
from conformance.bench.files import REQUESTS, RUN, read_run, write_run
from conformance.bench.load import Load, Measurement, Target
from conformance.bench.synthetic import GOOD, WRONG, but
from conformance.contract.errors import ContractError

TARGET = Target("http://127.0.0.1:1", "tiny")
KINDS = (GOOD, but(detail="line\n\u2028 end", chunk_tokens=(1, 1, 1, 1)), *(record for _, record in WRONG.values()))
RECORDS = tuple(dataclasses.replace(record, index=index) for index, record in enumerate(KINDS))
MEASUREMENT = Measurement(5, "2026-11-30T00:00:00+00:00", True, 0.25, 60.5, RECORDS)
LOAD = Load(burst(len(RECORDS)), np.arange(16 * len(RECORDS), dtype=np.int32).reshape(-1, 16), 4)


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "run", TARGET, LOAD, MEASUREMENT)
    return tmp_path / "run"


def test_a_run_reads_back_exactly(folder):
    facts, measurement = read_run(folder)
    assert measurement == MEASUREMENT
    assert facts.schedule_sha256 == LOAD.schedule.digest
    assert [path.name for path in folder.parent.iterdir()] == ["run"]


def test_a_run_is_never_written_over(folder):
    with pytest.raises(ContractError, match="already there"):
        write_run(folder, TARGET, LOAD, MEASUREMENT)


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path):
    broken = dataclasses.replace(MEASUREMENT, cpu_s=float("nan"))
    with pytest.raises(ValueError, match="Out of range float"):
        write_run(tmp_path / "run", TARGET, LOAD, broken)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_line_is_seen(folder):
    """Control: one time of one request, a nanosecond later."""
    path = folder / REQUESTS
    path.write_text(path.read_text().replace(f'"end_ns":{GOOD.end_ns}', f'"end_ns":{GOOD.end_ns + 1}', 1))
    with pytest.raises(ContractError, match="sha256 differs"):
        read_run(folder)


def test_other_folders_are_refused(folder, tmp_path):
    with pytest.raises(ContractError, match=r"no run\.json"):
        read_run(tmp_path)
    run = json.loads((folder / RUN).read_text())
    (folder / RUN).write_text(json.dumps(run | {"facts": run["facts"] | {"version": 1}}))
    with pytest.raises(ContractError, match="version 1; this suite reads 2"):
        read_run(folder)
    (folder / RUN).write_text("{")
    with pytest.raises(ContractError, match="not JSON"):
        read_run(folder)
