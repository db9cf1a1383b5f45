"""A measurement bundle is opened whole or refused, and edited events are seen."""

import json
from pathlib import Path

import pytest

from conformance.bench.bundle_files import MANIFEST
from conformance.bench.files import REQUESTS
from conformance.bench.files import RUN as RUN_FILE
from conformance.bench.measurements import CELL, Measurements
from conformance.bench.sweep_folder import SweepFolder
from conformance.bench.synthetic_sweep import MODEL, Scene, write_sweep
from conformance.bench.validator import problems
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError

NAME = "open-10-in32-out8-fixed"


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_sweep(tmp_path / "sweep", Scene((50.0,))).path


def cell_of(folder: Path) -> Path:
    return folder / "replicate-1" / NAME


def edit(path: Path, change) -> None:
    path.write_text(canonical_json(change(json.loads(path.read_text()))))


def edit_request(folder: Path, number: int, change) -> None:
    path = cell_of(folder) / "run" / REQUESTS
    lines = path.read_text().split("\n")
    lines[number] = canonical_json(change(json.loads(lines[number])))
    path.write_text("\n".join(lines))


def digest_anew(folder: Path) -> None:
    """What somebody does who edits and knows of the digests."""
    run = cell_of(folder) / "run"
    edit(run / RUN_FILE, lambda values: values | {"facts": values["facts"] | {"requests_sha256": sha256_file(run / REQUESTS)}})
    edit(folder / MANIFEST, lambda values: values | {"files": {name: sha256_file(folder / name) for name in values["files"]}})


def test_what_a_sweep_writes_is_valid(folder):
    """It reads back, cell by cell; nothing half done lies beside it."""
    measurements = Measurements(folder)
    assert list(problems(measurements)) == []
    measured = measurements.read(1, measurements.plan.cells[0])
    assert len(measured.run.records) == 40
    assert measurements.manifest.subject.model == MODEL
    assert not [path for path in folder.rglob(".*")]


def test_edited_events_are_refused(folder):
    edit_request(folder, 3, lambda values: values | {"end_ns": values["end_ns"] + 1})
    with pytest.raises(ContractError, match=r"requests\.jsonl is not the file that was recorded"):
        Measurements(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values | {"scheduled_ns": values["scheduled_ns"] + 10**7}, "request 3 and 0 more were not scheduled when"),
        (lambda values: values | {"headers_ns": values["sent_ns"] - 1}, "request 3: its times are not in order"),
    ],
)
def test_edited_events_with_new_digests_are_seen(folder, change, words):
    """Arrivals must be those of the seed, and a request's times in order."""
    edit_request(folder, 3, change)
    digest_anew(folder)
    assert any(words in problem for problem in problems(Measurements(folder)))


def test_other_prompts_than_the_cells_are_seen(folder):
    """Also where each digest by itself is right."""
    edit(cell_of(folder) / "run" / RUN_FILE, lambda values: values | {"facts": values["facts"] | {"prompts_sha256": "0" * 64}})
    digest_anew(folder)
    assert any("other prompts, another schedule or other lengths" in problem for problem in problems(Measurements(folder)))


def test_missing_extra_and_foreign_files_are_refused(folder):
    extra = folder / "replicate-1" / "extra.json"
    extra.write_text("{}")
    with pytest.raises(ContractError, match=r"extra\.json is not in manifest\.json"):
        Measurements(folder)
    extra.unlink()
    (cell_of(folder) / CELL).unlink()
    with pytest.raises(ContractError, match=r"cell\.json is missing"):
        Measurements(folder)
    edit(folder / MANIFEST, lambda values: values | {"version": 2})
    with pytest.raises(ContractError, match="version 2; this suite reads 1"):
        Measurements(folder)
    with pytest.raises(ContractError, match=r"no manifest\.json"):
        Measurements(folder.parent)


def test_a_sweep_goes_on_with_the_same_cells_and_subject_only(folder):
    known = Measurements(folder).manifest
    toml = folder / "cells.toml"
    assert SweepFolder.begin(folder, toml, known.subject, 1, known.cells).left(1) == ()
    with pytest.raises(ContractError, match="a sweep with another cells; choose a new folder"):
        SweepFolder.begin(folder, toml, known.subject, 1, known.cells | {NAME: "0"})
    with pytest.raises(ContractError, match="neither empty nor a sweep"):
        SweepFolder.begin(folder.parent, toml, known.subject, 1, known.cells)


def test_what_was_half_done_is_measured_again(folder):
    """A cell that was renamed but not yet in the manifest, and a hidden folder: both are removed."""
    known = Measurements(folder).manifest
    edit(folder / MANIFEST, lambda values: values | {"files": {name: one for name, one in values["files"].items() if NAME not in name}})
    (folder / "replicate-1" / f".{NAME}.partial").mkdir()
    again = SweepFolder.begin(folder, folder / "cells.toml", known.subject, 1, known.cells)
    assert [cell.name for cell in again.left(1)] == [NAME]
    assert not cell_of(folder).exists()
    assert not list(folder.rglob(".*"))
