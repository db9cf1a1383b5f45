"""What the command line runs."""

import argparse

from conformance.contract.errors import ContractError
from conformance.contract.recipe import load_recipe
from reference import record as recording
from reference.adapter import save_adapter
from reference.environment import prepare_process
from reference.processes import process_index
from reference.recorder import RUN_OF, Recorder
from reference.session import Session
from reference.sharding import use_sharding
from reference.train import Run
from reference.train import train as run_trainer


def record(options: argparse.Namespace) -> None:
    recording.record(load_recipe(options.recipe), options.out, options.rungs, recording.say, options.jobs)


def exchange(options: argparse.Namespace) -> None:
    recording.exchange(options.bundle, options.peer)


def train(options: argparse.Namespace) -> None:
    """The recipe's own run: its precision, dropout, initialiser and checkpointing; recorded as anybody's would be."""
    recipe = load_recipe(options.recipe)
    if process_index() == 0 and options.out.exists():  # the other processes may come when the first has made it
        raise ContractError(f"folder {options.out}: already there; choose a new folder or remove it")
    prepare_process()
    use_sharding()
    run = Run(RUN_OF[recipe.precision.compute], checkpointing=recipe.remat.policy != "none", seed=recipe.seeds.dropout)
    with Session(recipe, recording.say) as session:
        trainer = session.trainer(session.initial, run, out=options.out)
        Recorder(options.out / "bundle", recipe, plan=session.plan, progress=recording.say).attach(trainer)
        run_trainer(trainer, run.precision)
        save_adapter(trainer.model, options.out / "adapter")
