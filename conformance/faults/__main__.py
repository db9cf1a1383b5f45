"""python -m conformance.faults: plants every fault of the catalogue and prints where the ladder sees it first."""

import argparse
import sys
from pathlib import Path

from conformance.entry import command_parser, exit_code_of
from conformance.faults import run

EPILOG = """examples:
  python -m conformance.faults --out faults-out                          everything: about a quarter of an hour on two cores, and
                                                                         eight starts of a server where PARITY_VLLM_PYTHON has vLLM
  python -m conformance.faults --out faults-out --ids alpha-1-percent    one fault; the clean bundles in --out are kept
  python -m conformance.faults --out faults-out --ids sent-again         one of a client or a sweep: seconds, nothing is recorded
  python -m conformance.faults --out faults-1 --seed 1                   how well causes are named on recordings never seen

Exit codes: 0 every fault was caught where the catalogue says; 1 one was not; 2 bad input;
3 no vLLM here, so the faults of a server were not planted."""


def parser() -> argparse.ArgumentParser:
    top = command_parser(__doc__, EPILOG)
    top.add_argument("--out", type=Path, required=True, help="folder of recipe, bundles and recordings; clean bundles are kept")
    top.add_argument("--ids", type=lambda text: tuple(text.split(",")), help="comma-separated; all when left out")
    top.add_argument("--jobs", type=int, default=2, help="recorders at a time (default 2)")
    top.add_argument("--seed", type=int, help="record another recipe: the small one with this seed, which no signature has seen")
    top.add_argument("--recorded", action="store_true", help="judge the recordings that lie in --out; record no fault")
    top.add_argument("--write-signatures", action="store_true", help="write conformance/faults/signatures.json from this run")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return exit_code_of("faults", lambda: run.run(run.Options(**vars(options))))


if __name__ == "__main__":
    sys.exit(main())
