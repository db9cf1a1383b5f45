"""python -m conformance.soak: the ladder on recipes drawn from a seed; every verdict must be PASS."""

import argparse
import sys
from pathlib import Path

from conformance.contract.errors import ContractError
from conformance.soak import run
from conformance.summary import BAD_INPUT

EPILOG = """examples:
  python -m conformance.soak --out soak-out                   40 recipes, at most three quarters of an hour on two cores
  python -m conformance.soak --out soak-out --count 2         two of them
  python -m conformance.soak --out other --seed 2             forty others

Bundles that lie in --out are kept, so a stopped run goes on where it was. Exit codes: 0 no alarm; 1 a check failed on a
right port; 2 bad input."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m conformance.soak", description=__doc__.partition(": ")[2], epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--out", type=Path, required=True, help="folder of recipes, bundles and soak.jsonl")
    top.add_argument("--seed", type=int, default=1, help="what the recipes are drawn from (default 1)")
    top.add_argument("--count", type=int, default=40, help="how many recipes (default 40)")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return run.run(options.out, options.seed, options.count)
    except ContractError as error:
        print(f"soak: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
