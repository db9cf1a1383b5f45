"""The options of `parity bench`. Nothing is imported here that only a measurement needs."""

import argparse
from pathlib import Path

from conformance.pair import MODULES

LAUNCHES = 5  # the unit of a claim is one launch: with fewer an interval says little (DESIGN.md, Statistics)
WARM_UP = 3  # steps: compiled programs, allocators and loaders have settled by then

ABOUT = """Time a stack's training, step by step, and keep what each step took and did.

  parity bench --side reference --recipe R.toml --machine H100-2 --out bench-gpu        on the GPU machine
  parity bench --side port --recipe R.toml --machine v5p-8 --out bench-tpu              on the TPU machine
                    what will run, how long and for how many dollars is printed first; Ctrl-C keeps whole launches, the same
                    command goes on at the next
  parity bench --side reference --command "torchrun --nproc-per-node 2 -m reference bench" --recipe R.toml --out bench-gpu
  parity bench --show bench-tpu [--reference-bundle bundles/reference | --reference-bench bench-gpu]

A launch is one process, started anew. Another stack's command gets --recipe R --out DIR --steps N --seed S and writes steps.jsonl and
stack.json there (docs/training-bench.md). Exit codes: 0 every launch is whole and every check passed; 1 a launch or a check failed;
2 bad input; 3 something was not proven; 130 stopped."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description, command.formatter_class = ABOUT, argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("--side", choices=MODULES, help="which stack; with --command: which one it stands for")
    add("--recipe", type=Path, metavar="FILE", help="what is trained")
    add("--out", type=Path, metavar="DIR", help="folder of the measurement; one that is there is gone on with")
    add("--launches", type=int, default=LAUNCHES, help="processes, one after the other (default: %(default)s)")
    add("--steps", type=int, help="optimizer steps of a launch (default: all of the recipe's)")
    add("--warm-up", type=int, default=WARM_UP, help="first steps that no step time counts (default: %(default)s)")
    add("--machine", default="", help="such as v5p-8 (devices.toml): for MFU and prices")
    add("--plan", type=Path, metavar="FILE", help="what `parity claims plan` locked: the measurement names it for the gate")
    add("--command", dest="foreign", metavar="COMMAND", help="another command than ours")
    add("--target-loss", type=float, help="for time to target (default: the reference's loss, where its bundle is given)")
    add("--reference-bundle", type=Path, metavar="DIR", help="hold the losses against it")
    add("--reference-bench", type=Path, metavar="DIR", help="or, with dropout, against the reference's own timed launches")
    add("--show", type=Path, metavar="DIR", help="print a measurement")
