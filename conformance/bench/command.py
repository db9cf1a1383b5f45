"""`parity sweep`: measure a server over all cells, show a sweep, compare two, or read another tool's results."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from conformance.bench.bundle_files import LOGS
from conformance.bench.cell_report import CellSummary, summaries_of
from conformance.bench.cells import digests_of, read_plan
from conformance.bench.comparison import compare
from conformance.bench.imports import Imported, read_import
from conformance.bench.load import Limits, Target
from conformance.bench.measurements import Measurements, Subject
from conformance.bench.options import SERVERS
from conformance.bench.prompts import ordinary_tokens
from conformance.bench.servers import Running, launched, running_at
from conformance.bench.show_sweep import comparison_lines, sweep_lines
from conformance.bench.speed_of_light import Model, model_of, read_machine
from conformance.bench.sweep import Sweep, overview
from conformance.bench.sweep_folder import SweepFolder
from conformance.bench.validator import problems
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.progress import Speaker
from conformance.contract.serving.settings import SERVED_NAME
from conformance.findings import Verdict
from conformance.gate.lock import read_lock
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED


def run(options: argparse.Namespace) -> int:
    if options.foreign:
        return _print_import(options)
    if options.compare:
        return _print_comparison(*map(_valid, options.compare), options.plots)
    if options.show:
        return _print_sweep(_valid(options.show), options.plots)
    return _sweep(options)


def _sweep(options: argparse.Namespace) -> int:
    _check(options)
    progress, plan, tokens = Speaker("sweep"), read_plan(options.cells), ordinary_tokens(options.checkpoint)
    target = Target(options.url, options.model) if options.url else None
    digests, lock_sha256 = digests_of(plan, tokens, progress), read_lock(options.plan).digest if options.plan else ""
    about = (options.out, options.cells, _subject(options))
    folder = SweepFolder.begin(*about, 1 if target else options.replicates, digests, lock_sha256)
    if target and not any(map(folder.left, folder.replicates)):
        folder = SweepFolder.begin(*about, len(folder.replicates) + 1, digests, lock_sha256)
    for line in overview(plan, folder):
        progress(line)
    start = _given(options, target) if target else _launched(options, progress)
    try:
        Sweep(folder, tokens, start, Limits(options.connections, options.request_s), progress).run()
    except KeyboardInterrupt:
        progress(f"stopped: whole cells are kept in {options.out}, the same command goes on")
        raise
    return _print_sweep(folder, None)


def _check(options: argparse.Namespace) -> None:
    missing = [f"--{name}" for name in ("checkpoint", "out") if getattr(options, name) is None]
    missing += [] if options.url or options.platform else ["--url (or --platform)"]
    if missing:
        raise ContractError(f"{missing[0]} is missing; a sweep needs --checkpoint, --out, and --url or --platform")
    if options.replicates < 1:
        raise ContractError(f"--replicates {options.replicates}: at least 1")
    if options.machine:
        read_machine(options.machine)


def _subject(options: argparse.Namespace) -> Subject:
    tokenizer = sha256_file(options.checkpoint / "tokenizer.json")
    name = options.model if options.url else SERVED_NAME
    return Subject(options.platform or "", name, tokenizer, options.machine, _model(options.checkpoint))


def _model(checkpoint: Path | None) -> Model | None:
    return model_of(checkpoint) if checkpoint and (checkpoint / "config.json").is_file() else None


def _given(options: argparse.Namespace, target: Target) -> Callable[[], AbstractContextManager[Running]]:
    return lambda: nullcontext(running_at(target, options.log, options.server_manifest))


def _launched(options: argparse.Namespace, progress: Speaker) -> Callable[[], AbstractContextManager[Running]]:
    arguments = ["--checkpoint", str(options.checkpoint), *shlex.split(options.serve)]
    return partial(launched, SERVERS[options.platform], arguments, options.out / LOGS, progress)


def _valid(path: Path) -> Measurements:
    """What is missing yet is no fault: it is told with its cell."""
    measurements = Measurements(path)
    wrong = [problem for problem in problems(measurements) if not problem.endswith("not measured yet")]
    for problem in wrong:
        print(f"parity: {path}: {problem}", file=sys.stderr)
    if wrong:
        raise ContractError(f"measurements {path}: {len(wrong)} problems")
    return measurements


def _print_sweep(measurements: Measurements, plots: Path | None) -> int:
    summaries = summaries_of(measurements)
    _print(sweep_lines(measurements, summaries))
    _draw([measurements], plots)
    return _code(summaries)


def _code(summaries: tuple[CellSummary, ...]) -> int:
    """Cells that every start has left out are none."""
    if any(check.verdict is Verdict.FAIL for summary in summaries for result in summary.results for check in result.checks):
        return CHECK_FAILED
    measured = [summary for summary in summaries if not summary.results or any(result.figures for result in summary.results)]
    return NOT_DECIDED if any(summary.reasons for summary in measured) else ALL_PASS


def _print_comparison(a: Measurements, b: Measurements, plots: Path | None) -> int:
    found = compare(a, b)
    _print(comparison_lines(found))
    _draw([a, b], plots)
    given = [ratio.interval for cell in found.cells for ratio in cell.ratios]
    return ALL_PASS if given and all(given) else NOT_DECIDED


def _print_import(options: argparse.Namespace) -> int:
    machine = read_machine(options.machine) if options.machine else None
    failed = False
    for one in read_import(options.foreign):
        checks = one.checks(machine, _model(options.checkpoint))
        failed |= any(check.verdict is Verdict.FAIL for check in checks)
        _print([*_import_lines(one), *(f"  - {check}" for check in checks)])
    return CHECK_FAILED if failed else NOT_DECIDED


SHOWN = ("input_tokens", "output_tokens", "requests_per_s", "output_tokens_per_s")


def _import_lines(one: Imported) -> Iterator[str]:
    level = "" if one.level is None else f" {one.level:g}"
    yield f"{one.tool}: {one.mode}{level}: {one.requests} requests, failed {one.failed}"
    shown = {name: "unknown" if (value := getattr(one, name)) is None else f"{value:.5g}" for name in SHOWN}
    yield "  {} tokens in, {} out; {} requests/s, {} output tokens/s".format(*shown.values())
    for name, values in (("TTFT", one.ttft_ms), ("TPOT", one.tpot_ms), ("end to end", one.e2e_ms)):
        if values:
            yield f"  {name:<11}" + "  ".join(f"{part} {value:.2f}" for part, value in values.items()) + " ms"


def _draw(sweeps: list[Measurements], plots: Path | None) -> None:
    if plots:
        from conformance.bench.plots import draw  # matplotlib takes a second: only where it is used

        _print(f"written: {path}" for path in draw(sweeps, plots))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
