"""python -m conformance.faults.serving: plants faults of the rung serving on real servers, for `python -m conformance.faults`."""

import sys
from pathlib import Path

from conformance.contract.bundle import Bundle
from conformance.contract.faults import chosen, read_faults
from conformance.contract.plan import make_plan
from conformance.contract.progress import Speaker
from conformance.contract.recipe import load_recipe
from conformance.entry import command_parser, exit_code_of
from conformance.faults.serving.server import record_server_faults
from conformance.summary import ALL_PASS

EPILOG = """example:
  python -m conformance.faults.serving --recipe R.toml --bundle port --out recordings --ids base-served"""


def main(arguments: list[str] | None = None) -> int:
    parser = command_parser(__doc__, EPILOG)
    parser.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    parser.add_argument("--bundle", type=Path, required=True, help="the port's clean bundle of it, whose merged checkpoint is served")
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings, in which none of these is yet")
    parser.add_argument("--ids", type=lambda text: tuple(text.split(",")), help="comma-separated; all when left out")
    options = parser.parse_args(arguments)

    def record() -> int:
        faults, plan = chosen(read_faults(), options.ids), make_plan(load_recipe(options.recipe))
        record_server_faults(Bundle(options.bundle), plan, options.out, faults, Speaker("server"))
        return ALL_PASS

    return exit_code_of("faults", record)


if __name__ == "__main__":
    sys.exit(main())
