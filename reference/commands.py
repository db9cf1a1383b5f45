"""What the command line runs."""

import argparse
from pathlib import Path

from transformers.trainer_utils import get_last_checkpoint

from conformance.contract.errors import ContractError
from conformance.contract.faults import chosen, of_stack, read_faults
from conformance.contract.recipe import load_recipe
from conformance.contract.recordings import recordings
from reference import bench as timing
from reference import record as recording
from reference.adapter import save_adapter
from reference.environment import prepare_process
from reference.processes import ending_together, process_index
from reference.recorder import Recorder
from reference.session import Session
from reference.sharding import use_sharding
from reference.train import train as run_trainer


def record(options: argparse.Namespace) -> None:
    for path, out in recordings(options.recipe, options.out):
        recording.record(load_recipe(path), out, options.rungs, recording.say, options.jobs)


def exchange(options: argparse.Namespace) -> None:
    recording.exchange(options.bundle, options.peer)


def train(options: argparse.Namespace) -> None:
    """The recipe's own run: its precision, dropout, initialiser and checkpointing; recorded as anybody's would be."""
    recipe = load_recipe(options.recipe)
    checkpoint = _start(options.out, resume=options.resume)
    prepare_process()
    use_sharding()
    run = timing.own_run(recipe, save_every=options.save_every)
    with Session(recipe, recording.say) as session, ending_together():
        trainer = session.trainer(session.initial, run, dropout=recipe.adapter.dropout, out=options.out)
        Recorder(options.out / "bundle", recipe, plan=session.plan, progress=recording.say).attach(trainer)
        run_trainer(trainer, run.precision, checkpoint)
        save_adapter(trainer.model, options.out / "adapter")


def bench(options: argparse.Namespace) -> None:
    """The recipe's own run, timed; nothing else is kept of it."""
    timing.bench(load_recipe(options.recipe), options.out, options.steps, options.seed)


def faults(options: argparse.Namespace) -> None:
    """Records what planted faults change."""
    from reference.faults import recording as recording_faults  # no other command plants faults

    faults = of_stack(chosen(read_faults(), options.ids), "reference")
    recording_faults.record_faults(load_recipe(options.recipe), options.out, faults, recording.say, options.peer)


def _start(out: Path, *, resume: bool) -> Path | None:
    """The checkpoint to go on from; None starts in a new folder."""
    if resume:
        checkpoint = get_last_checkpoint(out) if out.is_dir() else None
        if checkpoint is None or (out / "adapter").exists():
            raise ContractError(f"folder {out}: " + ("its run has ended" if checkpoint else "no whole checkpoint to go on from"))
        return Path(checkpoint)
    if process_index() == 0 and out.exists():  # the other processes may come when the first has made it
        raise ContractError(f"folder {out}: already there; choose a new folder, remove it, or --resume")
    return None
