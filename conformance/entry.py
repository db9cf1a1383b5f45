"""The command lines of faults, soak and mutants: help from the module's docstring, bad input in one sentence."""

import argparse
import sys
from collections.abc import Callable

from conformance.contract.errors import ContractError
from conformance.summary import BAD_INPUT


def command_parser(about: str, epilog: str) -> argparse.ArgumentParser:
    """`about`: the module's docstring, "python -m MODULE: what it does"."""
    prog, _, description = about.partition(": ")
    return argparse.ArgumentParser(
        prog=prog, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def exit_code_of(label: str, run: Callable[[], int]) -> int:
    """What `run` returns; 2 with one sentence on stderr for bad input."""
    try:
        return run()
    except ContractError as error:
        print(f"{label}: {error}", file=sys.stderr)
        return BAD_INPUT
