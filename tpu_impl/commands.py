"""What the command line runs."""

import argparse

from conformance.contract.errors import ContractError
from conformance.contract.recipe import load_recipe
from conformance.contract.run_record import RUN_OF
from tpu_impl import record as recording
from tpu_impl.adapter import save_adapter
from tpu_impl.environment import prepare_process
from tpu_impl.recorder import Recorder
from tpu_impl.session import Session
from tpu_impl.train import Run, run_data
from tpu_impl.train import train as run_trainer


def record(options: argparse.Namespace) -> None:
    recording.record(load_recipe(options.recipe), options.out, options.rungs)


def exchange(options: argparse.Namespace) -> None:
    recording.exchange(options.bundle, options.peer)


def train(options: argparse.Namespace) -> None:
    """The recipe's own run: its precision, dropout and rematerialisation; recorded as anybody's would be."""
    recipe = load_recipe(options.recipe)
    if options.out.exists():
        raise ContractError(f"folder {options.out}: already there; choose a new folder or remove it")
    prepare_process()
    run = Run(RUN_OF[recipe.precision.compute], dropout=recipe.adapter.dropout, seed=recipe.seeds.dropout, remat=recipe.remat.policy)
    with Session(recipe, recording.say) as session:
        trainer = session.trainer(session.initial, run, out=options.out)
        Recorder(options.out / "bundle", recipe, plan=session.plan, progress=recording.say).attach(trainer)
        run_trainer(trainer, run_data(session.plan, session.rows, run))
        save_adapter(trainer.model, recipe, options.out / "adapter")
