"""What the command line runs."""

import argparse

import torch
import transformers

from conformance.contract.recipe import load_recipe
from reference.record import record as record_bundle
from reference.record import say


def _quiet() -> None:
    """Progress lines are ours; the libraries' bars and notes would bury them."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(torch.get_num_threads())


def record(options: argparse.Namespace) -> None:
    _quiet()
    record_bundle(load_recipe(options.recipe), options.out, options.rungs, say, options.jobs)
