"""`parity`: the front door. Parses, dispatches, and turns errors into one line and an exit code; imports neither torch nor jax."""

import argparse
import os
import sys
from pathlib import Path

from conformance import commands
from conformance.bench import options as sweep_options
from conformance.bench.training import options as bench_options
from conformance.contract.errors import ContractError
from conformance.contract.schema import RUNGS
from conformance.contract.serving.command import add_options
from conformance.gate import options as gate_options
from conformance.pair import MODULES
from conformance.saved import TINY
from conformance.summary import BAD_INPUT, STOPPED

OUT = Path("parity-out")

DESCRIPTION = f"""Is the TPU port the same recipe? Each stack records what it does into a bundle; the suite compares two bundles.

the ladder, proved in order (a failure stops the rungs above it):
  {" > ".join(RUNGS[:7])}
  > {" > ".join(RUNGS[7:])}

levels of a certificate:
  L0  a tiny model on CPU         L1  the same on the claimed devices        L2  the claimed recipe on them"""

EPILOG = """examples:
  parity check                                         both stacks here, on the tiny recipe, into parity-out/
  parity check --only logits                           one rung (no certificate)
  parity explain logits                                what it promises, and what usually goes wrong
  parity record reference --recipe R.toml --out ref    on the GPU machine
  parity record port --recipe R.toml --out port        on the TPU machine
  parity exchange port --bundle port --peer ref
  parity check --recipe R.toml --reference-bundle ref --port-bundle port
  parity check --port "python my_port.py"              a port of your own: docs/bundle.md
  parity serve --platform tpu --bundle port --image NAME@sha256:...    its merged checkpoint; --record: the rung serving

exit codes:
  0  every required check passed
  1  a check failed
  2  bad input or usage, or a stack broke
  3  nothing failed, but something was inconclusive or not proven"""


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except ContractError as error:
        print(f"parity: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("parity: stopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # whoever reads has seen enough, as in `parity ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more when it ends
        return STOPPED


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="parity", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_check, _add_record, _add_exchange, _add_report, _add_explain, _add_diff, _add_margins, _add_import, _add_validate,
        _add_doctor, _add_serve, _add_sweep, _add_bench, _add_claims, _add_gate, _add_package,
    ):  # fmt: skip
        add(subparsers)
    return top


def _command(subparsers, name: str, run, help_text: str) -> argparse.ArgumentParser:
    command = subparsers.add_parser(name, help=help_text, description=help_text)
    command.set_defaults(run=run)
    return command


def _add_check(subparsers) -> None:
    command = _command(subparsers, "check", commands.check, "record what is missing, compare, write report and certificate")
    command.epilog = "With PACKAGE, a folder of `parity package`: computes every value in it again, and says how many differ."
    command.add_argument("package", type=Path, nargs="?", metavar="PACKAGE", help="a reviewer's package; no other option then")
    command.add_argument("--recipe", type=Path, default=TINY, help="recipe file (default: the tiny recipe)")
    command.add_argument("--checkpoint", type=Path, help="checkpoint folder instead of the recipe's")
    _add_bundles(command)
    for stack in MODULES:
        text = f"any command that records the {stack}, run here as COMMAND --recipe R --out BUNDLE (docs/bundle.md)"
        command.add_argument(f"--{stack}", metavar="COMMAND", help=text)
    command.add_argument("--out", type=Path, default=OUT, help=f"bundles, findings, report, certificate (default: {OUT}/)")
    command.add_argument("--only", choices=RUNGS, metavar="RUNG", help="one rung (no certificate)")


def _add_record(subparsers) -> None:
    command = _command(subparsers, "record", commands.record, "run one stack and write its bundle")
    command.add_argument("stack", choices=MODULES)
    command.add_argument("--recipe", type=Path, required=True, help="recipe file")
    command.add_argument("--out", type=Path, required=True, help="folder of the new bundle; must not exist")
    command.add_argument("--rungs", help="comma-separated; all when left out")
    command.add_argument("--command", dest="foreign", metavar="COMMAND", help="another command than ours; its bundle is validated")


def _add_exchange(subparsers) -> None:
    command = _command(subparsers, "exchange", commands.exchange, "load the peer's adapters and merged files into one stack")
    command.add_argument("stack", choices=MODULES)
    command.add_argument("--bundle", type=Path, required=True, help="this stack's bundle; gains exchange/")
    command.add_argument("--peer", type=Path, required=True, help="the other stack's bundle")


def _add_report(subparsers) -> None:
    command = _command(subparsers, "report", commands.report, "write report.html again, or another form of it")
    command.add_argument("--out", type=Path, default=OUT, help=f"folder of an earlier check (default: {OUT}/)")
    command.add_argument("--claims", type=Path, metavar="FILE", help="what is stated; each claim goes through the gate")
    gate_options.add_evidence_options(command)
    command.add_argument("--one-page", action="store_true", help="one-page.html: verdict, level, claims, what is open")
    command.add_argument("--markdown", action="store_true", help="report.md: for a pull request")
    command.add_argument("--latex", type=Path, metavar="DIR", help="tables as .tex, figures as .pdf")


def _add_package(subparsers) -> None:
    text = "everything that a report rests on in one folder, for reviewers"
    command = _command(subparsers, "package", commands.package, text)
    command.epilog = "parity check DIR computes every value in it again, without torch or jax."
    command.add_argument("folder", type=Path, metavar="DIR", help="the new folder; must not exist")
    command.add_argument("--claims", type=Path, metavar="FILE", help="what is stated; each claim goes through the gate")
    gate_options.add_evidence_options(command)


def _add_explain(subparsers) -> None:
    command = _command(subparsers, "explain", commands.explain_rung, "a rung's promise, how it is judged, what usually goes wrong")
    command.add_argument("rung", choices=RUNGS, metavar="RUNG", help=", ".join(RUNGS))
    command.add_argument("--out", type=Path, default=OUT, help=f"folder of an earlier check (default: {OUT}/)")


def _add_diff(subparsers) -> None:
    command = _command(subparsers, "diff", commands.diff_recipes, "two recipes side by side, with what follows from them")
    command.add_argument("a", type=Path, metavar="A.toml")
    command.add_argument("b", type=Path, metavar="B.toml")
    command.add_argument("--all", action="store_true", help="also what is equal")


def _add_margins(subparsers) -> None:
    command = _command(subparsers, "margins", commands.margins, "margins of the equivalence tests, from two reference bundles")
    command.epilog = "The two bundles differ in seeds.dropout alone; a margin is fixed before any port is compared."
    command.add_argument("a", type=Path, metavar="A", help="a reference bundle")
    command.add_argument("b", type=Path, metavar="B", help="one of the same recipe, but for seeds.dropout")


def _add_import(subparsers) -> None:
    text = "a partial bundle from what there is; the rest is NOT PROVEN"
    command = _command(subparsers, "import", commands.import_files, text)
    command.add_argument("--recipe", type=Path, required=True, help="the recipe that the run followed")
    command.add_argument("--out", type=Path, required=True, help="folder of the new bundle; must not exist")
    command.add_argument("--stack", choices=MODULES, required=True, help="which side ran it")
    command.add_argument("--adapter", type=Path, metavar="FOLDER", help="the trained adapter, as PEFT saved it")
    command.add_argument("--orbax", type=Path, metavar="STEP", help="or a step of Tunix's checkpoint manager (needs the extra `port`)")
    command.add_argument("--trainer-state", type=Path, metavar="FILE", help="trainer_state.json of a transformers Trainer")
    command.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="or event files of one run (needs tensorboardX)")


def _add_validate(subparsers) -> None:
    command = _command(subparsers, "validate", commands.validate, "read a whole bundle: digests, every array, every line")
    command.add_argument("bundle", type=Path, metavar="BUNDLE")


def _add_doctor(subparsers) -> None:
    _command(subparsers, "doctor", commands.doctor, "what can run here, how long it takes, what can't be proved here")


def _add_serve(subparsers) -> None:
    command = _command(subparsers, "serve", commands.serve, "serve a merged checkpoint with vLLM, and check it")
    command.add_argument("--platform", choices=commands.SERVERS, help="tpu: v6e-8, gpu: two GPUs, cpu: this machine")
    command.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="two manifests: what differs between two servers")
    add_options(command)


def _add_sweep(subparsers) -> None:
    command = _command(subparsers, "sweep", commands.sweep, "measure a server; compare two: parity sweep --help")
    sweep_options.add_options(command)


def _add_bench(subparsers) -> None:
    command = _command(subparsers, "bench", commands.bench, "time a stack's training: parity bench --help")
    bench_options.add_options(command)


def _add_claims(subparsers) -> None:
    command = subparsers.add_parser("claims", help="stated numbers against each other; a plan to measure them")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "CONSISTENT, CONTRADICTORY or IMPOSSIBLE for each sum of a claims file, with the arithmetic; needs no hardware"
    check = _command(actions, "check", commands.check_claims, text)
    check.add_argument("file", type=Path, nargs="?", default=commands.PAPER, metavar="FILE", help="default: claims/paper.toml")
    check.add_argument("--json", action="store_true", help="one JSON line for each sum")


    plan = _command(actions, "plan", commands.plan_claims, "launches, steps and dollars that a margin needs, from a pilot")
    gate_options.add_plan_options(plan)


def _add_gate(subparsers) -> None:
    gate_options.add_gate_options(_command(subparsers, "gate", commands.gate, "which claims may be reported, and why others may not"))


def _add_bundles(command: argparse.ArgumentParser) -> None:
    command.add_argument("--reference-bundle", type=Path, help="a recorded bundle of the reference")
    command.add_argument("--port-bundle", type=Path, help="a recorded bundle of the port")


if __name__ == "__main__":
    sys.exit(main())
