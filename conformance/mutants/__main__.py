"""python -m conformance.mutants: plants mutants of the port and counts how many the ladder and today's checks see."""

import argparse
import sys
from pathlib import Path

from conformance.entry import command_parser, exit_code_of
from conformance.mutants import run

EPILOG = """examples:
  python -m conformance.mutants --out mutants-out                 210 mutants, drawn with seed 1; a stopped run goes on
  python -m conformance.mutants --out mutants-out --seed 2        another draw; outcomes of the first are kept
  python -m conformance.mutants --out mutants-out --faults        the catalogue's faults instead, with the peers' columns

The kill rate is reported, not demanded. Exit codes: 0 done; 1 a fault of the catalogue was not seen; 2 bad input, or something
was seen with nothing planted."""


def parser() -> argparse.ArgumentParser:
    top = command_parser(__doc__, EPILOG)
    top.add_argument("--out", type=Path, required=True, help="folder of recipe, clean bundles and outcomes; all are kept")
    top.add_argument("--count", type=int, default=210, help="mutants (default 210)")
    top.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    top.add_argument("--jobs", type=int, default=2, help="recorders at a time (default 2)")
    top.add_argument("--limit", type=float, default=600, help="seconds for one rung of one mutant, then it hangs (default 600)")
    top.add_argument("--faults", action="store_true", help="the catalogue of planted faults instead of mutants")
    top.add_argument("--ids", type=lambda text: tuple(text.split(",")), help="with --faults: comma-separated; all when left out")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return exit_code_of("mutants", lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.faults:
        return run.run_faults(options.out, options.ids, options.jobs, options.limit)
    return run.run_mutants(options.out, options.count, options.seed, options.jobs, options.limit)


if __name__ == "__main__":
    sys.exit(main())
