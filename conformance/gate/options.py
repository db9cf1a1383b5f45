"""The options of `parity gate` and `parity claims plan`. Nothing is imported here that only they need."""

import argparse
from pathlib import Path

from conformance.bench.prices import PRICES

ABOUT = """Which claims may be reported? Every finding is computed again from the bundles, every figure from raw measurements.

  parity gate --claims claims.toml --recipe R.toml --reference-bundle ref --port-bundle port --measurements time-gpu time-tpu
  parity gate --claims claims.toml --recipe tiny.toml --reference-bundle ref1 --port-bundle port1 \\
              --recipe R.toml --reference-bundle ref2 --port-bundle port2 --measurements time-gpu time-tpu sweep-gpu sweep-tpu \\
              --plan plan.toml --json
                    a claim needs L1 and L2: a pair of bundles for each, in the same order

For each claim the ratio with its interval and one-sided bound and REPORTABLE, or WITHHELD with every reason; docs/gate.md explains
each. Exit codes: 0 every claim is reportable; 1 one is withheld; 2 bad input."""

PLAN = """The cheapest measurement that can show a claim: launches x steps, of servers starts x requests, from a pilot's spread.

  parity claims plan --margin 2% --budget 300 --pilot time-gpu time-tpu --out plan.toml
  parity bench --plan plan.toml ...     parity sweep --plan plan.toml ...     parity gate --plan plan.toml ...

Power: the chance that the bound reaches what is stated when the truth is --margin above it (of an equality: when both sides are equal).
plan.toml locks margin and counts: the gate refuses measurements that do not name it, are older, or have less.
Exit codes: 0 a plan within the budget; 1 none is, and what the budget buys is printed; 2 bad input."""


def add_gate_options(command: argparse.ArgumentParser) -> None:
    _about(command, ABOUT)
    add = command.add_argument
    add("--claims", type=Path, required=True, metavar="FILE", help="what is stated (claims/paper.toml is an example)")
    add_evidence_options(command)
    add("--json", action="store_true", help="one JSON object instead of text")
    add("--out", type=Path, metavar="DIR", help="also write gate.json there")


def add_evidence_options(command: argparse.ArgumentParser) -> None:
    """What claims are held against; for report and package too."""
    add = command.add_argument
    for name, text in (("recipe", "recipe file"), ("reference-bundle", "of the reference"), ("port-bundle", "of the port")):
        add(f"--{name}", type=Path, action="append", default=[], metavar="PATH", help=f"{text}; once for each pair of bundles")
    add("--measurements", type=Path, nargs="+", action="extend", default=[], metavar="DIR", help="of `parity bench` and `parity sweep`")
    add("--certificate", type=Path, action="append", default=[], metavar="FILE", help="must be what the bundles give")
    add("--prices", type=Path, default=PRICES, metavar="FILE", help="dollars an hour of a machine (default: bench/prices.toml)")
    add("--tuning", type=Path, metavar="FILE", help="what was tried on each side (default: tuning.toml beside the measurements)")
    add("--plan", type=Path, metavar="FILE", help="what `parity claims plan` locked before the measurements")


def add_plan_options(command: argparse.ArgumentParser) -> None:
    _about(command, PLAN)
    add = command.add_argument
    add("--margin", required=True, metavar="SHARE", help='how much better than stated the truth is taken to be, such as "2%%"')
    add("--budget", type=float, required=True, metavar="USD", help="for both sides together")
    add("--pilot", type=Path, nargs="+", required=True, metavar="DIR", help="a few launches or starts, of one side or both")
    add("--claims", type=Path, metavar="FILE", help="how many claims are told apart from chance together (default: one)")
    add("--prices", type=Path, default=PRICES, metavar="FILE", help="dollars an hour of a machine (default: bench/prices.toml)")
    add("--out", type=Path, metavar="FILE", help="write the lock, plan.toml; never over another")


def _about(command: argparse.ArgumentParser, text: str) -> None:
    command.description, command.formatter_class = text, argparse.RawDescriptionHelpFormatter
