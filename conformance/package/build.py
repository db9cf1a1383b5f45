"""`parity package`: recipes, bundles, raw measurements, claims and prices, with the report and every value that it states."""

import argparse
import os
import platform
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from conformance.bench.bundle_files import digests_below, write_json
from conformance.causes import likely_causes
from conformance.certificate import Certificate, suite_version, write_certificate
from conformance.contract.digest import canonical_json, sha256_tree
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, Speaker
from conformance.findings import write_findings
from conformance.gate.command import given_of
from conformance.gate.evidence import Given
from conformance.package.contents import Contents, contents_of
from conformance.package.copying import copy_given
from conformance.package.layout import MANIFEST, STATED, VERSION, Manifest
from conformance.package.stated import stated, write_stated
from conformance.report.forms import write_markdown, write_one_page, write_report
from conformance.report.measured import Measured
from conformance.saved import FINDINGS
from conformance.summary import ALL_PASS

SUITE = Path(__file__).parents[1]
PACKAGES = ("numpy", "scipy", "ml_dtypes", "safetensors", "tokenizers", "matplotlib")


def run(options: argparse.Namespace) -> int:
    manifest = build(options.folder, given_of(options), options.claims, Speaker("package"))
    counts = f"{len(manifest.files)} files, {manifest.values:,} stated values"
    print(f"{options.folder}: {counts}; check it with `parity check {options.folder}`")
    return ALL_PASS


def build(folder: Path, given: Given, claims: Path | None, progress: Progress) -> Manifest:
    """FOLDER, written beside and renamed."""
    if not given.pairs:
        raise ContractError("package: give --recipe, --reference-bundle and --port-bundle: a report rests on a pair of bundles")
    if folder.exists():
        raise ContractError(f"package {folder}: already there; choose a new folder or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.resolve().with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        progress("copying")
        left_out = copy_given(given, claims, partial)
        progress("computing every value")
        contents = contents_of(partial)
        progress("writing the report")
        manifest = _write(partial, contents, left_out)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _write(folder: Path, contents: Contents, left_out: list[Path]) -> Manifest:
    values = stated(contents.facts)
    write_findings(folder / FINDINGS, contents.inputs.findings)
    if contents.inputs.certificate:
        write_certificate(folder, Certificate(contents.inputs.certificate))
    write_stated(folder / STATED, values)
    write_report(folder, contents.inputs, likely_causes, contents.facts)
    write_one_page(folder, contents.facts)
    write_markdown(folder, contents.facts)
    outside = digests_below(folder, *left_out)
    for path in left_out:
        path.unlink()
    files = digests_below(folder, *sorted(path for path in folder.rglob("*") if path.is_file()))
    made = datetime.now(UTC).isoformat(timespec="seconds")
    launches = tuple(_launches(contents.inputs.measured))
    manifest = Manifest(VERSION, made, sha256_tree(SUITE), suite_version(), _system(), launches, len(values), files, outside)
    write_json(folder / MANIFEST, manifest)
    return manifest


def _launches(measured: Measured) -> Iterator[str]:
    """All of them, failed ones too: one JSON text each, with seed and process."""
    for stack, one in measured.trainings:
        for launch in one.launches:
            about = {"number": launch.number, "outcome": launch.outcome, "reason": launch.reason, "seed": launch.seed}
            yield canonical_json({"of": "training", "side": stack, "process": launch.process, **about})
    for stack, sweep in measured.sweeps:
        for replicate in sweep.replicates:
            left = [cell.name for cell in sweep.left(replicate)]
            yield canonical_json({"of": "serving", "side": stack, "number": replicate, "seed": sweep.plan.seed, "not measured": left})


def _system() -> dict:
    """Of the machine that computed the values; those that recorded and measured are named in their own manifests."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "machine": platform.platform(), "cpus": str(os.cpu_count())} | packages
