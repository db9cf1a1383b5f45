"""Checkpoints: a resumed run against the uninterrupted one, and kills in the middle of saves."""

import dataclasses
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from conformance.contract.draws import Tensors, philox
from conformance.contract.resume import END, SPLIT, STEPS, Finished, resume_of
from conformance.contract.run_record import Kill, Resume
from reference.adapter import adapter_parameters
from reference.recorder import Recorder
from reference.saver import PARTIAL, call, load_state, save_forever, save_state, state_of
from reference.session import Session
from reference.step import get_moments
from reference.train import Run, train

KILLS = 20
LEAST_ELEMENTS = 1 << 20  # with m and v 12 MB a save: tens of milliseconds, so that a kill can land inside
PATIENCE_S = 60.0
REACH = 0.75  # of the measured save: noticing the folder takes time too, and a later kill finds the save finished


def resumes(session: Session, dropout: float) -> Iterator[Resume]:
    """Trains 6 steps with a save at the third; resumes that save, and the last one of a run that ended at the fifth.

    Each in a fresh trainer with another adapter.
    """
    out = session.scratch / f"resume-{dropout}"
    interval, last = out / f"checkpoint-{SPLIT}", out / f"checkpoint-{END}"
    run = Run(steps=STEPS, save_every=SPLIT, seed=session.recipe.seeds.dropout)
    whole = _finish(session, run, session.initial, dropout, out)
    yield resume_of(dropout, "interval", SPLIT, whole, _finish(session, run, session.warm.adapter, dropout, out, interval))
    _finish(session, dataclasses.replace(run, steps=END), session.warm.adapter, dropout, out, interval)
    yield resume_of(dropout, "last", END, whole, _finish(session, run, session.warm.adapter, dropout, out, last))
    shutil.rmtree(out)


def _finish(
    session: Session, run: Run, start: Tensors, dropout: float, out: Path, checkpoint: Path | None = None
) -> Finished:
    """Trains to the end, from a save if there is one. The Trainer skips as many rows as its saved state says were consumed."""
    saved = checkpoint and TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step
    trainer = session.trainer(start, run, dropout=dropout, out=out)
    recorder = Recorder(None, session.recipe, plan=session.plan).attach(trainer)
    adapter = train(trainer, run.precision, checkpoint)
    moments = get_moments(trainer.optimizer, adapter_parameters(trainer.model))
    return Finished(recorder.steps, recorder.consumed, adapter | moments, saved)


def kills(session: Session, around: Callable = call) -> Iterator[Kill]:
    """20 saver processes, each killed inside its second save or a later one. `around` runs what they do."""
    adapter = sum(value.size for value in session.initial.values())
    elements = max(adapter, LEAST_ELEMENTS)
    save_ms = measured_save_ms(session.scratch / "timed", elements)
    context = get_context("forkserver")  # it imports torch once; every saver is a fork of it
    context.set_forkserver_preload(["reference.saver"])
    draw = philox("kills", session.recipe.seeds.data, "delay_ms")
    for attempt in range(KILLS):
        run = session.scratch / f"kill-{attempt}"
        run.mkdir()
        yield _kill(context, around, run, elements, attempt, REACH * save_ms * float(draw.uniform()), save_ms)
        shutil.rmtree(run)


def measured_save_ms(folder: Path, elements: int) -> float:
    """Median of 5 saves in milliseconds."""
    state, times = state_of(0, elements), []
    for step in range(5):
        start = time.perf_counter()
        save_state(folder / f"checkpoint-{step}", state)
        times.append(1e3 * (time.perf_counter() - start))
    shutil.rmtree(folder)
    return float(np.median(times))


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
    step, equal = restored(run, elements)
    return Kill(attempt, delay_ms, save_ms, any(run.glob(f"{PARTIAL}*")), step, equal)


def restored(run: Path, elements: int) -> tuple[int, bool]:
    """(step of the last save, whether it loads as it was saved). One that does not load is lost; stderr has the error."""
    newest = get_last_checkpoint(str(run))
    if newest is None:
        return 0, False
    last = Path(newest)
    step = int(last.name.removeprefix("checkpoint-"))
    try:
        saved, found = state_of(step, elements), load_state(last)
    except Exception:
        traceback.print_exc()
        return step, False
    return step, saved.keys() == found.keys() and all(torch.equal(saved[key], found[key]) for key in saved)


def _wait_for_the_second(run: Path) -> None:
    """Until a second step has begun, under whatever name. Polls without sleeping: a save lasts only milliseconds."""
    deadline, steps = time.monotonic() + PATIENCE_S, set()
    while len(steps := steps | {path.name.rpartition("-")[2] for path in run.iterdir()}) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no second save in {run} after {PATIENCE_S:g} s")
