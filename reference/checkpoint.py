"""Checkpoints: a resumed run against the uninterrupted one, and kills in the middle of saves."""

import shutil
import signal
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from transformers.trainer_utils import get_last_checkpoint

from conformance.contract.draws import Tensors, philox
from conformance.contract.run_record import Kill, Resume
from reference.adapter import adapter_parameters
from reference.recorder import Recorder
from reference.saver import PARTIAL, load_state, save_forever, save_state, state_of
from reference.session import Session
from reference.step import get_moments
from reference.train import Run, train

STEPS, SPLIT = 6, 3
KILLS = 20
LEAST_ELEMENTS = 1 << 20  # with m and v 12 MB a save: tens of milliseconds, so that a kill can land inside
PATIENCE_S = 60.0
REACH = 0.75  # of the measured save: noticing the folder takes time too, and a later kill finds the save finished


def resume_equality(session: Session, dropout: float) -> Resume:
    """Trains 6 steps with a save at the third; then resumes that save in a fresh trainer with another adapter."""
    out = session.scratch / f"resume-{dropout}"
    run = Run(steps=STEPS, save_every=SPLIT, seed=session.recipe.seeds.dropout)
    whole, whole_end = _finish(session, run, session.initial, dropout, out)
    resumed, resumed_end = _finish(session, run, session.warm.adapter, dropout, out, out / f"checkpoint-{SPLIT}")
    shutil.rmtree(out)
    moments = {name for name in whole_end if name.endswith((".m", ".v"))}
    return Resume(
        dropout, SPLIT,
        equal_loss=whole.steps[SPLIT:] == resumed.steps,
        equal_adapters=_equal(whole_end, resumed_end, set(whole_end) - moments),
        equal_moments=_equal(whole_end, resumed_end, moments),
        equal_position=[one for one in whole.consumed if one.step >= SPLIT] == resumed.consumed,
        steps=STEPS,
    )  # fmt: skip


def _finish(
    session: Session, run: Run, start: Tensors, dropout: float, out: Path, checkpoint: Path | None = None
) -> tuple[Recorder, Tensors]:
    """Trains to the end: what the recorder saw, and the adapter with its moments."""
    trainer = session.trainer(start, run, dropout=dropout, out=out)
    recorder = Recorder(None, session.recipe, plan=session.plan).attach(trainer)
    adapter = train(trainer, run.precision, checkpoint)
    return recorder, adapter | get_moments(trainer.optimizer, adapter_parameters(trainer.model))


def _equal(a: Tensors, b: Tensors, names: set[str]) -> bool:
    return bool(names) and all(np.array_equal(a[name], b[name]) for name in names)


def kills(session: Session) -> Iterator[Kill]:
    """20 saver processes, each killed inside its second save or a later one."""
    adapter = sum(value.size for value in session.initial.values())
    elements = max(adapter, LEAST_ELEMENTS)
    save_ms = measured_save_ms(session.scratch / "timed", elements)
    context = get_context("forkserver")  # it imports torch once; every saver is a fork of it
    context.set_forkserver_preload(["reference.saver"])
    draw = philox("kills", session.recipe.seeds.data, "delay_ms")
    for attempt in range(KILLS):
        run = session.scratch / f"kill-{attempt}"
        run.mkdir()
        yield _kill(context, run, elements, attempt, REACH * save_ms * float(draw.uniform()), save_ms)
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


def _kill(context, run: Path, elements: int, attempt: int, delay_ms: float, save_ms: float) -> Kill:
    process = context.Process(target=save_forever, args=(str(run), elements), daemon=True)
    process.start()
    try:
        _wait_for(run, "checkpoint-*")
        _wait_for(run, f"{PARTIAL}*")
        time.sleep(delay_ms / 1e3)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL, f"the saver ended by itself: exit code {process.exitcode}"
    last = Path(get_last_checkpoint(str(run)))
    step = int(last.name.removeprefix("checkpoint-"))
    saved, restored = state_of(step, elements), load_state(last)
    equal = saved.keys() == restored.keys() and all(torch.equal(saved[key], restored[key]) for key in saved)
    return Kill(attempt, delay_ms, save_ms, any(run.glob(f"{PARTIAL}*")), step, equal)


def _wait_for(run: Path, pattern: str) -> None:
    """Polls without sleeping: a save lasts only milliseconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(run.glob(pattern)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {pattern} in {run} after {PATIENCE_S:g} s")
