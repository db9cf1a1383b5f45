"""python -m conformance.soak: the ladder on recipes drawn from a seed; every verdict must be PASS."""

import argparse
import sys
from pathlib import Path

from conformance.entry import command_parser, exit_code_of
from conformance.soak import run

EPILOG = """examples:
  python -m conformance.soak --out soak-out                   40 recipes, at most three quarters of an hour on two cores
  python -m conformance.soak --out soak-out --count 2         two of them
  python -m conformance.soak --out other --seed 2             forty others

Bundles that lie in --out are kept, so a stopped run goes on where it was. Exit codes: 0 no alarm; 1 a check failed on a
right port; 2 bad input."""


def parser() -> argparse.ArgumentParser:
    top = command_parser(__doc__, EPILOG)
    top.add_argument("--out", type=Path, required=True, help="folder of recipes, bundles and soak.jsonl")
    top.add_argument("--seed", type=int, default=1, help="what the recipes are drawn from (default 1)")
    top.add_argument("--count", type=int, default=40, help="how many recipes (default 40)")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return exit_code_of("soak", lambda: run.run(options.out, options.seed, options.count))


if __name__ == "__main__":
    sys.exit(main())
