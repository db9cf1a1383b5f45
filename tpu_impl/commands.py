"""What the command line runs."""

import argparse

import jax

from conformance.contract.errors import ContractError
from conformance.contract.faults import chosen, of_stack, read_faults
from conformance.contract.recipe import load_recipe
from conformance.contract.recordings import recordings
from tpu_impl import bench as timing
from tpu_impl import record as recording
from tpu_impl.adapter import save_adapter, write_adapter
from tpu_impl.environment import prepare_process
from tpu_impl.orbax_step import read_adapter
from tpu_impl.processes import Place, joined, place_from
from tpu_impl.recorder import Recorder
from tpu_impl.session import Session
from tpu_impl.sharding import recipes_mesh
from tpu_impl.train import run_data
from tpu_impl.train import train as run_trainer


def record(options: argparse.Namespace) -> None:
    with joined(place_of(options)):
        for path, out in recordings(options.recipe, options.out):
            recipe = load_recipe(path)
            with recipes_mesh(recipe):
                recording.record(recipe, out, options.rungs)
            jax.clear_caches()  # the next recipe has no program of this one


def exchange(options: argparse.Namespace) -> None:
    recording.exchange(options.bundle, options.peer)


def train(options: argparse.Namespace) -> None:
    """The recipe's own run: its mesh, precision, dropout and rematerialisation; recorded as anybody's would be."""
    recipe = load_recipe(options.recipe)
    if options.out.exists() and not options.resume:
        raise ContractError(f"folder {options.out}: already there; choose a new folder, remove it, or --resume")
    if options.resume and not options.save_every:
        raise ContractError("--resume needs --save-every: a run that saves nothing has nothing to go on from")
    prepare_process()
    run = timing.own_run(recipe, steps=options.steps, save_every=options.save_every)
    with joined(place_of(options)), Session(recipe, recording.say) as session, recipes_mesh(recipe):
        trainer = session.trainer(session.initial, run, out=options.out / "checkpoints")
        out = options.out if jax.process_index() == 0 else session.scratch  # every process reads, the first one writes
        Recorder(out / "bundle", recipe, plan=session.plan, progress=recording.say).attach(trainer)
        run_trainer(trainer, run_data(session.plan, session.rows, run))
        save_adapter(trainer.model, recipe, out / "adapter")


def bench(options: argparse.Namespace) -> None:
    """The recipe's own run, timed; nothing else is kept of it."""
    recipe = load_recipe(options.recipe)
    prepare_process()
    with joined(place_of(options)), Session(recipe, recording.say) as session, recipes_mesh(recipe):
        timing.bench(session, timing.own_run(recipe, steps=options.steps, seed=options.seed), options.out)


def adapter(options: argparse.Namespace) -> None:
    """An Orbax step's adapter as a PEFT folder."""
    write_adapter(read_adapter(options.step), load_recipe(options.recipe), options.out)


def place_of(options: argparse.Namespace) -> Place:
    return place_from(options.coordinator, options.processes, options.process_id)


def faults(options: argparse.Namespace) -> None:
    """Records what planted faults change."""
    from tpu_impl.faults import recording as recording_faults  # no other command plants faults

    faults = of_stack(chosen(read_faults(), options.ids), "port")
    recipe = load_recipe(options.recipe)
    if options.clean:
        recording_faults.record_clean(recipe, options.out, faults, recording.say)
    else:
        recording_faults.record_faults(recipe, options.out, faults, recording.say, options.peer)
