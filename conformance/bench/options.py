"""The options of `parity sweep`. Nothing is imported here that only a sweep needs."""

import argparse
from pathlib import Path

SERVED_NAME = "merged"  # by which `parity serve` lets requests name the model
STARTS = 3  # server starts: with fewer, an interval says little (DESIGN.md, Statistics)
DEFAULT, TINY = (Path(__file__).with_name(name) for name in ("cells.toml", "cells-tiny.toml"))
CONNECTIONS = 1024
REQUEST_S = 3600.0  # of one request: in a saturated cell the last one waits for all others
SERVERS = {"tpu": "tpu_impl.serve", "gpu": "reference.serve", "cpu": "conformance.contract.serving.cpu"}

ABOUT = f"""Measure a server over all cells of a sweep, and keep the raw events of every request.

  parity sweep --checkpoint merged/ --platform tpu --serve "--image NAME@sha256:..." --machine v6e-8 --out sweep-tpu
                    starts and stops a server for each replicate; Ctrl-C keeps whole cells, the same command goes on
  parity sweep --url http://HOST:8000 --checkpoint merged/ --log server.log --server-manifest serving-tpu.json --out sweep-tpu
                    one replicate on a server that is up; start it anew before each of the {STARTS}
  parity sweep --show sweep-tpu [--plots plots/]
  parity sweep --compare sweep-gpu sweep-tpu [--plots plots/]          ratios B / A, or why each is withheld
  parity sweep --import vllm-bench.json --machine v6e-8 --checkpoint merged/

--cells names a TOML file ({DEFAULT.name} and {TINY.name} lie beside this module). docs/serving-sweep.md says what is checked. Exit
codes: 0 every cell is valid, or every ratio given; 1 a check failed; 2 bad input; 3 something was not proven; 130 stopped."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description, command.formatter_class = ABOUT, argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("--url", help="of a server that is up, http://host:port")
    add("--model", default=SERVED_NAME, help="the name under which it knows the model (default: %(default)s)")
    add("--checkpoint", type=Path, metavar="DIR", help="what is served; prompts are drawn from its tokenizer")
    add("--platform", choices=SERVERS, help="whose server to start; with --url: what it is")
    add("--serve", default="", metavar="OPTIONS", help="further options of `parity serve`, in one word")
    add("--machine", default="", help="such as v6e-8 (devices.toml): for the speed of light and prices")
    add("--cells", type=Path, default=DEFAULT, metavar="FILE", help="which cells (default: the whole sweep)")
    add("--replicates", type=int, default=STARTS, help="server starts (default: %(default)s)")
    add("--connections", type=int, default=CONNECTIONS, help="of the client, at most (default: %(default)s)")
    add("--request-s", type=float, default=REQUEST_S, help="after so long a request has failed (default: %(default)g)")
    add("--log", type=Path, metavar="FILE", help="with --url: the server's log, watched for compilations")
    add("--server-manifest", type=Path, metavar="FILE", help="with --url: what `parity serve --manifest` wrote")
    add("--out", type=Path, metavar="DIR", help="folder of the sweep; one that is there is gone on with")
    add("--plan", type=Path, metavar="FILE", help="what `parity claims plan` locked: the sweep names it, and the gate looks for that")
    add("--show", type=Path, metavar="DIR", help="print a sweep")
    add("--compare", type=Path, nargs=2, metavar=("A", "B"), help="print the ratios of two")
    add("--import", type=Path, dest="foreign", metavar="FILE", help="JSON of vllm bench serve, guidellm or aiperf")
    add("--plots", type=Path, metavar="DIR", help="with --show and --compare: write figures there")
