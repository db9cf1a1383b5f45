"""What each `parity` command does, thin over the packages. A command takes its parsed options and returns an exit code."""

import argparse
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from conformance import certificate
from conformance import doctor as machine
from conformance.bench.training import command as benching
from conformance.causes import explanations, likely_causes, usual_causes
from conformance.claims import consistency
from conformance.claims.claims_file import read_claims
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.errors import ContractError
from conformance.contract.levels import L0
from conformance.contract.recipe import load_recipe
from conformance.contract.serving import manifest as serving_manifest
from conformance.contract.serving.server import interruptible
from conformance.findings import Verdict
from conformance.importing import Sources, import_bundle
from conformance.judge import explain
from conformance.pair import MODULES, Commands, record_stacks
from conformance.recipe_diff import diff, plan_or_problem
from conformance.saved import FINDINGS, saved_findings
from conformance.statistics import MARGIN_SDS, equivalence
from conformance.summary import ALL_PASS, BAD_INPUT, CHECK_FAILED, NOT_DECIDED, exit_code
from conformance.trajectories import differences, dropout_pairs
from conformance.validation import examine

ROOT = Path(__file__).parents[1]
PAPER = Path(__file__).with_name("claims") / "paper.toml"
EXPLAINED = 6  # causes of a failure that `parity explain` lists
SERVERS = {"tpu": "tpu_impl.serve", "gpu": "reference.serve", "cpu": "conformance.contract.serving.cpu"}
GRACE_S = 40  # a child that was asked to stop ends its own children first: a server is given 25 s


def check(options: argparse.Namespace) -> int:
    """pytest on the ladder, in a process of its own; what an earlier run left in the folder goes first. Or a package."""
    if options.package:
        return _check_package(options)
    load_recipe(options.recipe)
    _commands(options).check({stack: getattr(options, f"{stack}_bundle") for stack in MODULES})
    for path in filter(None, (options.reference_bundle, options.port_bundle)):
        if not (path / MANIFEST).is_file():
            raise ContractError(f"bundle {path}: no {MANIFEST}: not a bundle, or its recorder was stopped")
    for name in (FINDINGS, certificate.NAME):
        (options.out / name).unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "conformance", "-m", "parity", *_pytest_options(options)]
    code = run_child(command, cwd=ROOT)
    return _check_code(code, options.out, (options.only,) if options.only else L0.rungs)


def record(options: argparse.Namespace) -> int:
    rungs = ["--rungs", options.rungs] if options.rungs else []
    if options.foreign is None:
        return _stack(options.stack, "record", "--recipe", str(options.recipe), "--out", str(options.out), *rungs)
    load_recipe(options.recipe)
    if options.out.exists():
        raise ContractError(f"bundle {options.out}: already there; choose a new folder or remove it")
    chosen = options.rungs.split(",") if options.rungs else ()
    record_stacks(options.recipe, {options.stack: options.out}, chosen, Commands({options.stack: options.foreign}))
    return ALL_PASS


def exchange(options: argparse.Namespace) -> int:
    return _stack(options.stack, "exchange", "--bundle", str(options.bundle), "--peer", str(options.peer))


def import_files(options: argparse.Namespace) -> int:
    sources = Sources(options.adapter, options.orbax, options.trainer_state, options.tensorboard)
    for note in import_bundle(load_recipe(options.recipe), options.out, options.stack, sources):
        print(f"not imported: {note}")
    return validate(argparse.Namespace(bundle=options.out))


def report(options: argparse.Namespace) -> int:
    from conformance.report.command import run  # matplotlib takes a second: only where it is used

    return run(options)


def package(options: argparse.Namespace) -> int:
    from conformance.package.build import run

    return run(options)


def explain_rung(options: argparse.Namespace) -> int:
    """Failures of an earlier run first; the causes are then those that all failures of the rung together look like."""
    about = explanations()[options.rung]
    found = saved_findings(options.out) or []
    failed = [one for one in found if one.rung == options.rung and one.verdict is Verdict.FAIL]
    console = Console()
    for finding in failed:
        console.print(Text(explain(finding, found) + "\n"))
    console.print(Text(about.rung, style="bold"), _labelled(promise=about.promise, judged=about.judged))
    console.print(Text("\nlikely causes, best first" if failed else "\nwhat usually goes wrong", style="bold"))
    for cause in likely_causes(failed[0], found)[:EXPLAINED] if failed else usual_causes(options.rung):
        heading = cause.symptom or cause.how_alike or "a planted fault"
        console.print(Text(f"\n  {heading}"), _labelled(why=cause.cause, where=cause.seam, mend=cause.mend))
    return ALL_PASS


def diff_recipes(options: argparse.Namespace) -> int:
    recipes = [load_recipe(path) for path in (options.a, options.b)]
    lines = [line for line in diff(*recipes) if options.all or line.differs]
    table = Table("", options.a.name, options.b.name, box=None, pad_edge=False, header_style="bold")
    for line in lines:
        style = "bold" if line.differs and options.all else ""
        table.add_row(*(Text(text, style=style, overflow="fold") for text in (line.name, line.a, line.b)))
    console = Console()
    console.print(table if lines else Text("The two recipes are the same."))
    for path, recipe in zip((options.a, options.b), recipes, strict=True):
        problem = plan_or_problem(recipe)[1]
        if problem:
            console.print(Text(f"\n{path.name}: steps and tokens are not known here: {problem}"))
    return ALL_PASS


def margins(options: argparse.Namespace) -> int:
    """Nothing is written: a margin is a decision, and belongs into tolerances.toml before the port's runs are seen."""
    a, b = Bundle(options.a), Bundle(options.b)
    pairs = dropout_pairs(a, b)
    if len(pairs) < 2 or np.array_equal(*pairs[0]):
        raise ContractError(f"bundles {a.path} and {b.path}: {len(pairs)} pairs of dropout runs, or equal ones: change seeds.dropout")
    columns = ("summary", "pairs", "mean", "sd", f"{MARGIN_SDS} sd")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for name, moved in differences(pairs).items():
        found = equivalence(moved)
        table.add_row(name, str(found.n), f"{found.mean:+.2%}", f"{found.sd:.2%}", f"{MARGIN_SDS * found.sd:.2%}")
    Console().print(table)
    return ALL_PASS


def validate(options: argparse.Namespace) -> int:
    """Opening checks the digests; then every array and line is held against the schema, and all problems are told."""
    examined = examine(options.bundle)
    for problem in examined.problems:
        print(f"parity: {problem}", file=sys.stderr)
    if examined.problems:
        return BAD_INPUT
    bundle = examined.bundle
    table = Table("rung", "arrays", "lines", "without", "recorded in part", box=None, pad_edge=False, header_style="bold")
    for one in examined.rungs:
        cells = (one.rung, str(one.arrays), str(one.lines), ", ".join(one.without), one.partial)
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    if bundle.exchanged:
        table.add_row("exchange", str(len(bundle.exchange)), "0")
    console = Console()
    console.print(Text(f"{bundle.path}: a valid bundle of the {bundle.stack}, {bundle.manifest.get('device', 'device unknown')}"))
    console.print(table)
    missing = [*examined.missing, *([] if bundle.exchanged else ["exchange"])]
    console.print(Text(f"missing, and so not proven: {', '.join(missing)}" if missing else "no rung is missing"))
    return ALL_PASS


def check_claims(options: argparse.Namespace) -> int:
    """Exit code 1 when any sum does not come out."""
    outcomes = list(consistency.check(read_claims(options.file)))
    console = Console()
    if options.json:
        for one in outcomes:
            print(json.dumps({"about": one.sum.about, "verdict": one.verdict, "arithmetic": one.arithmetic, "source": one.sum.source}))
    else:
        for one in outcomes:
            console.print(Text(f"{one.verdict:13}  {one.sum.about}"))
            console.print(Padding(Text(f"{one.arithmetic}  ({one.sum.source})"), (0, 0, 0, 15)))
        counts = Counter(one.verdict for one in outcomes)
        console.print(Text(f"{len(outcomes)} sums: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in consistency.Verdict)))
    return ALL_PASS if all(one.verdict is consistency.Verdict.CONSISTENT for one in outcomes) else CHECK_FAILED


def gate(options: argparse.Namespace) -> int:
    from conformance.gate.command import run

    return run(options)


def plan_claims(options: argparse.Namespace) -> int:
    from conformance.gate.plan import run

    return run(options)


def doctor(options: argparse.Namespace) -> int:
    machine.print_examination(machine.examine(), Console())
    return ALL_PASS


def serve(options: argparse.Namespace) -> int:
    """The platform's own module, in a process of its own; or two manifests side by side."""
    if options.compare:
        return _compare_servers(*options.compare)
    if not options.platform:
        raise ContractError(f"give --platform, one of {', '.join(SERVERS)}, or --compare A B")
    arguments = without_option(options.arguments[1:], "--platform")
    with interruptible():
        return run_child([sys.executable, "-m", SERVERS[options.platform], *arguments])


def sweep(options: argparse.Namespace) -> int:
    try:
        from conformance.bench.command import run  # aiohttp and prometheus_client come with the extra `serving` alone
    except ModuleNotFoundError as error:
        raise ContractError(f"{error.name} is not installed: pip install 'tpu-parity[serving]'") from error
    with interruptible():
        return run(options)


def bench(options: argparse.Namespace) -> int:
    with interruptible():
        return benching.run(options)


def without_option(arguments: list[str], name: str) -> list[str]:
    """`arguments` but for `NAME VALUE` or `NAME=VALUE`."""
    if name in arguments:
        at = arguments.index(name)
        return arguments[:at] + arguments[at + 2 :]
    return [word for word in arguments if not word.startswith(f"{name}=")]


def _compare_servers(a: Path, b: Path) -> int:
    """Settings that decide numbers or batches must be equal; versions and the like may differ, and are named."""
    servers = [serving_manifest.flat(serving_manifest.read_manifest(path)) for path in (a, b)]
    found = serving_manifest.differences(*servers)
    table = Table("setting", a.name, b.name, "", box=None, pad_edge=False, header_style="bold")
    for one in found:
        cells = (one.setting, one.a, one.b, "must be equal" if one.is_decisive else "named in results")
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    Console().print(table if found else Text("The two servers are set alike."))
    return CHECK_FAILED if any(one.is_decisive for one in found) else ALL_PASS


def run_child(command: list[str], cwd: Path | None = None) -> int:
    """Exit code of `command`. Whatever ends this process asks the child to stop first, so that it can end its own children."""
    child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL)
    try:
        return child.wait()
    finally:
        if child.poll() is None:
            _stop(child)


def _labelled(**texts: str) -> Padding:
    """Label and text, folded beside the label."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, text in texts.items():
        grid.add_row(Text(f"{label}:"), Text(text))
    return Padding(grid, (0, 0, 0, 4))


def _stop(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGINT)
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _stack(stack: str, *arguments: str) -> int:
    """`python -m STACK ...`; a crash of the stack is no failed check."""
    return BAD_INPUT if run_child([sys.executable, "-m", MODULES[stack], *arguments]) else ALL_PASS


def _pytest_options(options: argparse.Namespace) -> list[str]:
    """The same options under the same names; absolute paths, since pytest runs in the repository."""
    paths = {name: getattr(options, name) for name in ("recipe", "checkpoint", "reference_bundle", "port_bundle", "out")}
    given = [f"--{name.replace('_', '-')}={path.resolve()}" for name, path in paths.items() if path]
    commands = _commands(options)
    given += [f"--{stack}={command}" for stack, command in commands.by_stack.items()]
    given += [f"--command-folder={commands.folder}"] if commands.by_stack else []
    return given + ([f"--only={options.only}"] if options.only else [])


def _commands(options: argparse.Namespace) -> Commands:
    return Commands({stack: command for stack in MODULES if (command := getattr(options, stack)) is not None}, Path.cwd())


def _check_package(options: argparse.Namespace) -> int:
    from conformance.package.check import run

    given = [name for name in ("reference_bundle", "port_bundle", "checkpoint", "reference", "port", "only") if getattr(options, name)]
    if given:
        raise ContractError(f"check {options.package}: --{given[0].replace('_', '-')} cannot be given with a package: all is in it")
    return run(options)


def _check_code(code: int, out: Path, rungs: tuple[str, ...]) -> int:
    """pytest's code says whether it could run at all, the findings say what came of it."""
    if code == CHECK_FAILED:
        return CHECK_FAILED
    findings = saved_findings(out) if code in (ALL_PASS, NOT_DECIDED) else None
    return BAD_INPUT if findings is None else exit_code(findings, rungs)
