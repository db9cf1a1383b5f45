"""Checkpoints: a resumed run against the uninterrupted one, and kills in the middle of saves."""

import dataclasses
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np

from conformance.contract.draws import Tensors, philox
from conformance.contract.resume import END, SPLIT, STEPS, Finished, resume_of
from conformance.contract.run_record import Kill, Resume
from tpu_impl.adapter import get_adapter
from tpu_impl.optimizer import AdamState, part_of
from tpu_impl.processes import together
from tpu_impl.saver import PARTIAL, answer, call, restored, save_forever, time_saves
from tpu_impl.session import Session
from tpu_impl.step import MOMENTS, named
from tpu_impl.train import Run

KILLS = 20
TIMED_SAVES = 5
LEAST_ELEMENTS = 1 << 20  # with m and v 12 MB a save: a kill can land inside
PATIENCE_S = 60.0
REACH = 0.75  # of the measured save: noticing the folder takes time too, and a later kill finds the save finished


def resumes(session: Session, dropout: float) -> Iterator[Resume]:
    """Trains 6 steps with a save at the third; resumes that save, and the last one of a run that ended at the fifth.

    Each in a fresh trainer with another adapter.
    """
    out = session.shared / f"resume-{dropout}"
    run = Run(steps=STEPS, save_every=SPLIT, dropout=dropout, seed=session.recipe.seeds.dropout)
    whole = _finish(session, run, session.initial, out)
    _remove(out / str(STEPS))  # as if the run had died after its first save
    yield resume_of(dropout, "interval", SPLIT, whole, _finish(session, run, session.warm.adapter, out))
    _remove(out / str(STEPS))
    _finish(session, dataclasses.replace(run, steps=END), session.warm.adapter, out)
    yield resume_of(dropout, "last", END, whole, _finish(session, run, session.warm.adapter, out))
    _remove(out)


def _remove(folder: Path) -> None:
    """By the first process, when all are done with it."""
    together(f"done with {folder}")
    if jax.process_index() == 0:
        shutil.rmtree(folder)
    together(f"removed {folder}")


def _finish(session: Session, run: Run, start: Tensors, out: Path) -> Finished:
    """Trains to the end, from the last save in `out` if there is one."""
    recorder, trainer = session.recorded_run(start, run, label=f"checkpoint dropout {run.dropout:g}", out=out)
    adam = part_of(trainer.optimizer.opt_state, AdamState)
    moments = {moment: named(trainer.model, getattr(adam, moment)) for moment in MOMENTS}
    named_moments = {f"{name}.{k}": value for k in MOMENTS for name, value in moments[k].items()}
    return Finished(recorder.steps, recorder.consumed, get_adapter(trainer.model) | named_moments, trainer.saved_step)


def kills(session: Session, around: Callable = call) -> Iterator[Kill]:
    """20 saver processes, each killed inside its second save or a later one. `around` runs what they do."""
    elements = max(sum(value.size for value in session.initial.values()), LEAST_ELEMENTS)
    context = get_context("forkserver")  # it imports Orbax once; every saver is a fork of it
    context.set_forkserver_preload(["tpu_impl.saver"])
    save_ms = float(np.median(_asked(context, around, time_saves, str(session.scratch / "timed"), elements, TIMED_SAVES)))
    draw = philox("kills", session.recipe.seeds.data, "delay_ms")
    for attempt in range(KILLS):
        run = session.scratch / f"kill-{attempt}"
        run.mkdir()
        yield _kill(context, around, run, elements, attempt, REACH * save_ms * float(draw.uniform()), save_ms)
        shutil.rmtree(run)


def _asked(context, function, *args):
    """A function's value from a process that is alone: Orbax waits for every process of a run, and the savers are none of it."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(sender, function, *args), daemon=True)
    process.start()
    sender.close()
    value = receiver.recv()
    process.join()
    return value


def _kill(context, around: Callable, run: Path, elements: int, attempt: int, delay_ms: float, save_ms: float) -> Kill:
    process = context.Process(target=around, args=(save_forever, str(run), elements), daemon=True)
    process.start()
    try:
        _wait_for_the_second(run)
        time.sleep(delay_ms / 1e3)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL, f"the saver ended by itself: exit code {process.exitcode}"
    partial = any(run.glob(PARTIAL))  # before a manager of ours opens the folder
    step, equal = _asked(context, around, restored, str(run), elements)
    return Kill(attempt, delay_ms, save_ms, partial, step, equal)


def _wait_for_the_second(run: Path) -> None:
    """Until a second step has begun, under whatever name. Polls without sleeping: a save lasts only some tens of milliseconds."""
    deadline, steps = time.monotonic() + PATIENCE_S, set()
    while len(steps := steps | {path.name.split(".")[0] for path in run.iterdir()}) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no second save in {run} after {PATIENCE_S:g} s")
