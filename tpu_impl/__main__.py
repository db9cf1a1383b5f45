"""python -m tpu_impl record|exchange|train|bench|adapter|faults: see --help of each."""

import argparse
import os
import sys
from pathlib import Path

# Before any library that reads them is imported: recording needs no network, and one thread is as fast as two at this size.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

EPILOG = """examples:
  python -m tpu_impl record --recipe conformance/recipes/tiny.toml --out bundles/port
  python -m tpu_impl record --recipe R.toml --out B --rungs tokens,batches     only some rungs
  python -m tpu_impl exchange --bundle bundles/port --peer bundles/reference   after both stacks have recorded
  python -m tpu_impl train --recipe R.toml --out run                           a plain run: adapter/ and bundle/
  python -m tpu_impl train --recipe R.toml --out run --save-every 100 --coordinator 10.0.0.2:8476 --processes 2 --process-id 0
                                              one of two processes; each reads its own rows, and a restart adds --resume
  python -m tpu_impl faults --recipe R.toml --out faults --ids alpha-1-percent,norm-eps   what planted faults change

A bundle appears under its name when it is whole; Ctrl-C leaves nothing that reads as one. Exit codes: 0 done, 2 bad input,
4 another process is lost."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tpu_impl", description="The recipe in JAX (Tunix, Qwix): record what it does, or just train.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="write a bundle: everything the suite compares")
    record.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML), or a folder of them: a bundle each in --out")
    record.add_argument("--out", type=Path, required=True, help="folder of the new bundle; must not exist")
    record.add_argument("--rungs", type=lambda text: text.split(","), help="comma-separated; all when left out")
    exchange = commands.add_parser("exchange", help="load the peer's adapters and merged files here, write the logits")
    exchange.add_argument("--bundle", type=Path, required=True, help="this stack's bundle; gains exchange/")
    exchange.add_argument("--peer", type=Path, required=True, help="the other stack's bundle")
    train = commands.add_parser("train", help="a plain run of the recipe, recorded like anybody's trainer")
    train.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    train.add_argument("--out", type=Path, required=True, help="new folder for adapter/, checkpoints/ and bundle/")
    train.add_argument("--steps", type=int, help="stop after so many optimizer steps; the recipe's when left out")
    train.add_argument("--save-every", type=int, help="optimizer steps between checkpoints; none when left out")
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    bench = commands.add_parser("bench", help="one timed run: what a launch of `parity bench` is")
    bench.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    bench.add_argument("--out", type=Path, required=True, help="new folder for steps.jsonl and stack.json")
    bench.add_argument("--steps", type=int, help="stop after so many optimizer steps; the recipe's when left out")
    bench.add_argument("--seed", type=int, help="of dropout; the recipe's when left out")
    adapter = commands.add_parser("adapter", help="the adapter in a step of an Orbax checkpoint, as a PEFT folder")
    adapter.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML): its rank, alpha, targets")
    adapter.add_argument("--step", type=Path, required=True, help="folder of the step, as Tunix's CheckpointManager wrote it")
    adapter.add_argument("--out", type=Path, required=True, help="new folder")
    faults = commands.add_parser("faults", help="plant the catalogue's faults one by one, record what each changes")
    faults.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    faults.add_argument("--out", type=Path, required=True, help="folder that gains a partial bundle for every fault")
    faults.add_argument("--ids", type=lambda text: tuple(text.split(",")), help="comma-separated; all when left out")
    faults.add_argument("--clean", action="store_true", help="plant none: write the bundle OUT of the meshes that --ids need")
    faults.add_argument("--peer", type=Path, help="the other stack's clean bundle, for faults of reading its files")
    for command in (record, train, bench):
        _add_place(command)
    return top


def _add_place(command: argparse.ArgumentParser) -> None:
    """Several processes are one run; without options JAX's own environment variables say so."""
    command.add_argument("--coordinator", help="host:port where all processes meet (JAX_COORDINATOR_ADDRESS)")
    command.add_argument("--processes", type=int, help="how many processes run together (JAX_NUM_PROCESSES)")
    command.add_argument("--process-id", type=int, help="which of them this one is, from 0 (JAX_PROCESS_ID)")


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # Imported late, so that --help and a mistyped option answer at once.
    from conformance.contract.errors import ContractError
    from tpu_impl import commands

    try:
        getattr(commands, options.command)(options)
    except ContractError as error:
        print(f"port: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("port: stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
