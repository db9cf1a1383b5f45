"""python -m reference record|exchange|train|bench|faults: see --help of each."""

import argparse
import os
import sys
from pathlib import Path

# Before any library that reads them is imported: recording needs no network, and one thread gives equal bits everywhere.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

EPILOG = """examples:
  python -m reference record --recipe conformance/recipes/tiny.toml --out bundles/reference
  python -m reference record --recipe R.toml --out B --rungs tokens,batches     only some rungs
  python -m reference record --recipe R.toml --out B --jobs 2                   repeated runs in a second process
  python -m reference exchange --bundle bundles/reference --peer bundles/port   after both stacks have recorded
  python -m reference train --recipe R.toml --out run --save-every 50           one process
  accelerate launch --config_file reference/fsdp2.yaml --num_processes 4 -m reference train --recipe R.toml --out run
  torchrun --standalone --nproc-per-node 4 -m reference train --recipe R.toml --out run    the same: it reads fsdp2.yaml too

A bundle appears under its name when it is whole; Ctrl-C leaves nothing that reads as one. Exit codes: 0 done, 2 bad input,
4 another process of the run was lost."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m reference", description="The recipe in PyTorch: record what it does, or just train.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="write a bundle: everything the suite compares")
    record.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML), or a folder of them: a bundle each in --out")
    record.add_argument("--out", type=Path, required=True, help="folder of the new bundle; must not exist")
    record.add_argument("--rungs", type=lambda text: text.split(","), help="comma-separated; all when left out")
    record.add_argument("--jobs", type=int, default=1, help="processes for the repeated training runs (default 1)")
    exchange = commands.add_parser("exchange", help="load the peer's adapters and merged files here, write the logits")
    exchange.add_argument("--bundle", type=Path, required=True, help="this stack's bundle; gains exchange/")
    exchange.add_argument("--peer", type=Path, required=True, help="the other stack's bundle")
    train = commands.add_parser("train", help="a plain run of the recipe, recorded like anybody's trainer")
    train.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    train.add_argument("--out", type=Path, required=True, help="new folder for adapter/, checkpoints and bundle/")
    train.add_argument("--save-every", type=int, metavar="STEPS", help="a checkpoint every so many steps (default: none)")
    train.add_argument("--resume", action="store_true", help="go on in --out from its last whole checkpoint; bundle/ then begins there")
    bench = commands.add_parser("bench", help="one timed run: what a launch of `parity bench` is")
    bench.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    bench.add_argument("--out", type=Path, required=True, help="new folder for steps.jsonl and stack.json")
    bench.add_argument("--steps", type=int, help="stop after so many optimizer steps; the recipe's when left out")
    bench.add_argument("--seed", type=int, help="of dropout; the recipe's when left out")
    faults = commands.add_parser("faults", help="plant the catalogue's faults of the reference, record what each changes")
    faults.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    faults.add_argument("--out", type=Path, required=True, help="folder that gains a partial bundle for every fault")
    faults.add_argument("--ids", type=lambda text: tuple(text.split(",")), help="comma-separated; all when left out")
    faults.add_argument("--peer", type=Path, help="the other stack's clean bundle, for faults of reading its files")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # Imported late, so that --help and a mistyped option answer at once.
    from conformance.contract.errors import ContractError
    from reference import commands
    from reference.processes import ProcessLostError

    try:
        getattr(commands, options.command)(options)
    except ContractError as error:
        print(f"reference: {error}", file=sys.stderr)
        return 2
    except ProcessLostError as error:
        print(f"reference: {error}; --resume goes on from the last whole checkpoint", file=sys.stderr, flush=True)
        return 4
    except KeyboardInterrupt:
        print("reference: stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
