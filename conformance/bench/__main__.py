"""python -m conformance.bench: one run against a server that speaks the OpenAI completions API, with a schedule from a seed."""

import argparse
import sys
from pathlib import Path

from conformance.bench.arrivals import Schedule, burst, closed_loop, poisson
from conformance.bench.client import measure
from conformance.bench.files import read_run, write_run
from conformance.bench.lag import lag_of
from conformance.bench.load import LIMITS, Limits, Load, Measurement, Target
from conformance.bench.prompts import draw_prompts, ordinary_tokens
from conformance.bench.show import lines
from conformance.contract.errors import ContractError
from conformance.contract.progress import Speaker
from conformance.entry import command_parser, exit_code_of
from conformance.summary import ALL_PASS, CHECK_FAILED, STOPPED

EPILOG = """examples:
  python -m conformance.bench --url http://HOST:8000 --model merged --checkpoint merged/ --rate 4 --requests 480 --out run
                                       open loop: Poisson arrivals, 4 a second, latencies from the scheduled arrival
  ... --burst --requests 512           all at once: peak throughput
  ... --concurrency 32 --requests 512  closed loop: 32 under way
  python -m conformance.bench --show run

Prompts are token ids, drawn from --seed, none shares a first block with another. --out gets requests.jsonl (raw events of each
request) and run.json. Ctrl-C ends the run with what was measured so far. Exit codes: 0 the client kept up; 1 it did not, and the run is
invalid; 2 bad input; 130 stopped."""


def parser() -> argparse.ArgumentParser:
    top = command_parser(__doc__, EPILOG)
    top.add_argument("--show", type=Path, metavar="RUN", help="print a run that was written before")
    top.add_argument("--url", help="http://host:port")
    top.add_argument("--model", help="the name under which the server knows it")
    top.add_argument("--checkpoint", type=Path, help="folder with tokenizer.json: prompts are drawn from its ordinary tokens")
    how = top.add_mutually_exclusive_group()
    how.add_argument("--rate", type=float, help="requests per second")
    how.add_argument("--burst", action="store_true", help="all requests at once")
    how.add_argument("--concurrency", type=int, help="so many requests under way")
    top.add_argument("--requests", type=int, default=480, help="how many (default 480: from 459 on there is a p99)")
    top.add_argument("--input-tokens", type=int, default=128, help="of each prompt (default 128)")
    top.add_argument("--output-tokens", type=int, default=32, help="of each reply (default 32)")
    top.add_argument("--natural", action="store_true", help="a reply may end before --output-tokens")
    top.add_argument("--seed", type=int, default=1, help="of arrivals and prompts (default 1)")
    top.add_argument("--connections", type=int, default=LIMITS.connections, help="at most (default %(default)s)")
    top.add_argument("--out", type=Path, help="folder to write")
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return exit_code_of("bench", lambda: _show(options.show) if options.show else _run(options))


def _show(folder: Path) -> int:
    facts, measurement = read_run(folder)
    return _say(measurement, facts.schedule)


def _run(options: argparse.Namespace) -> int:
    _need(options)
    target = Target(options.url, options.model)
    schedule = _schedule(options)
    prompts = draw_prompts(ordinary_tokens(options.checkpoint), options.requests, options.input_tokens, options.seed)
    load = Load(schedule, prompts, options.output_tokens, not options.natural)
    measurement = measure(target, load, Limits(connections=options.connections), Speaker("bench"))
    write_run(options.out, target, load, measurement)
    return _say(measurement, schedule.kind)


def _need(options: argparse.Namespace) -> None:
    missing = [name for name in ("url", "model", "checkpoint", "out") if getattr(options, name) is None]
    if missing:
        raise ContractError(f"--{missing[0]} is missing; a run needs --url, --model, --checkpoint and --out (or --show RUN alone)")
    if options.out.exists():
        raise ContractError(f"--out {options.out}: already there; choose a new folder or remove it")


def _schedule(options: argparse.Namespace) -> Schedule:
    if options.burst:
        return burst(options.requests)
    if options.concurrency is not None:
        return closed_loop(options.concurrency, options.requests)
    if options.rate is None:
        raise ContractError("one of --rate, --burst and --concurrency is needed")
    return poisson(options.rate, options.requests, options.seed)


def _say(measurement: Measurement, schedule: str) -> int:
    for line in lines(measurement, schedule):
        print(line)
    if measurement.interrupted:
        return STOPPED
    return ALL_PASS if lag_of(measurement).valid else CHECK_FAILED


if __name__ == "__main__":
    sys.exit(main())
