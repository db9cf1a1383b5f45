"""Records the rungs *gradients*, *optimizer*, *one_step* and *trajectory*."""

import dataclasses
import os
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_array, sha256_json
from conformance.contract.draws import Tensors, WarmState, perturbed
from conformance.contract.optimizer_cases import optimizer_cases
from conformance.contract.progress import Progress
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import DEFAULT_DROPOUT, StepLine, write_steps
from reference.adapter import set_adapter
from reference.data import TokenisedRow, tokenise
from reference.environment import prepare_process
from reference.recorder import Recorder
from reference.session import Session
from reference.step import StepGradients, micro_batches, run_chain, step_gradients, warm_step
from reference.train import Run

ACCUMULATIONS = (1, 2, 4)
FLOOR_SAMPLES = 4  # beside the warm state's own
OTHER_RATE = 1.25  # times the learning rates of the run that shows what the statistics can see


def record_gradients(session: Session, writer: BundleWriter) -> None:
    exact = session.trainer(session.warm.adapter, Run("f64"))
    _write_gradients(writer, "warm", step_gradients(exact, warm_batches(session), "f64"), prefix="f64", precision="f64")
    trainer = session.trainer(session.warm.adapter, Run())
    for sample, start in floor_starts(session).items():
        found = []
        for one, precision in ((trainer, "f32"), (exact, "f64")):
            set_adapter(one.model, start.adapter)
            found.append(_with_scalars(step_gradients(one, warm_batches(session), precision)))
        _write_floor(writer, "gradients", sample, *found)
    set_adapter(trainer.model, session.warm.adapter)
    for variant, batches in variant_batches(session).items():
        prefix = "f32" if variant == "warm" else f"f32.{variant}"
        _write_gradients(writer, variant, step_gradients(trainer, batches), prefix=prefix)
    set_adapter(trainer.model, session.initial)
    _write_gradients(writer, "cold", step_gradients(trainer, warm_batches(session)), prefix="cold")
    checkpointing = session.trainer(session.warm.adapter, Run(checkpointing=True))
    found = step_gradients(checkpointing, warm_batches(session))
    _write_gradients(writer, "checkpointing=on", found, prefix="f32.checkpointing=on")


def floor_starts(session: Session) -> dict[int, WarmState]:
    """Warm states a few ulp apart: each gives another sample of float32's rounding. One sample alone is no floor (tolerances.toml)."""
    warm = session.warm
    return {i: dataclasses.replace(warm, adapter=perturbed(warm.adapter, i)) for i in range(1, FLOOR_SAMPLES + 1)}


def _with_scalars(found: StepGradients) -> Tensors:
    return found.gradients | {"loss": np.asarray(found.loss), "grad_norm": np.asarray(found.grad_norm)}


def _write_floor(writer: BundleWriter, rung: str, sample: int, single: Tensors, exact: Tensors) -> None:
    """Each tensor's rms error of float32 against float64, from the same start."""
    for tensor, truth in exact.items():
        error = float(np.sqrt(np.mean(np.square(single[tensor].astype(np.float64) - truth))))
        writer.line(rung, "floor", tensor=tensor, sample=sample, rms_error=error)


def variant_batches(session: Session) -> dict[str, list[dict]]:
    """The warm step's micro-batches: as the recipe splits them, split otherwise, and with loss over the prompt too."""
    effective = session.recipe.batch.effective
    splits = {f"accumulation={n}": n for n in ACCUMULATIONS if effective % n == 0} | {"batch=1": effective}
    unmasked = tokenise(session.plan, session.base(), session.tokenizer, loss_scope="all")
    return {
        "warm": warm_batches(session),
        "checkpointing=off": warm_batches(session),
        **{variant: warm_batches(session, accumulation) for variant, accumulation in splits.items()},
        "unmasked": warm_batches(session, rows=unmasked),
    }


def warm_batches(session: Session, accumulation: int | None = None, rows: dict[int, TokenisedRow] | None = None) -> list[dict]:
    batch = session.recipe.batch
    steps = session.plan.with_batch(accumulation or batch.accumulation * batch.shards, 1)
    return micro_batches(steps[session.plan.warm_rows.index], rows or session.rows, session.plan.pad_id)


def _write_gradients(writer: BundleWriter, variant: str, found: StepGradients, *, prefix: str, precision: str = "f32") -> None:
    for tensor, value in found.gradients.items():
        writer.array("gradients", f"{prefix}/{tensor}", value)
    digests = {tensor: sha256_array(value) for tensor, value in found.gradients.items()}
    writer.line(
        "gradients", "norms", variant=variant, precision=precision, loss=found.loss, grad_norm=found.grad_norm,
        sha256=sha256_json(digests),
    )  # fmt: skip


def record_optimizer(session: Session, writer: BundleWriter) -> None:
    trainer = session.trainer(session.initial, Run())
    for case in optimizer_cases(session.recipe.optimizer.clip_norm):
        for index, step in enumerate(run_chain(trainer, case)):
            for key in ("update", "m", "v"):
                writer.array("optimizer", f"{case.name}/{index}/{key}", getattr(step, key))
            writer.line("optimizer", "clip", case=case.name, step=index, grad_norm=step.grad_norm, factor=step.clip_factor)


def record_one_step(session: Session, writer: BundleWriter) -> None:
    trainers = {precision: session.trainer(session.warm.adapter, Run(precision)) for precision in ("f32", "f64")}
    for precision, trainer in trainers.items():
        moved, grad_norm = warm_step(trainer, session.warm, warm_batches(session), precision)
        for tensor, value in moved.items():
            writer.array("one_step", f"{precision}/{tensor}", value)
        writer.line("one_step", "norms", precision=precision, grad_norm=grad_norm)
    for sample, start in floor_starts(session).items():
        found = [warm_step(trainer, start, warm_batches(session), precision) for precision, trainer in trainers.items()]
        _write_floor(writer, "one_step", sample, *(moved for moved, _ in found))


@dataclass(frozen=True, slots=True)
class Member:
    """One of the repeated runs; `perturbation` None starts from the contract's initial adapter itself."""

    name: str
    run: Run
    perturbation: int | None = None
    dropout: float = 0.0


def members(recipe: Recipe) -> list[Member]:
    """The float64 run, and the runs that measure the spread of float32, of bfloat16 and of dropout.

    bfloat16 runs after the first round their products stochastically. Starts 2 float32 ulp apart give nearly one bfloat16 run,
    and the same one at step 0, where B = 0 hides A: their worst said nothing of what another order of operations does.
    They take each step in one micro-batch, a quarter faster: the *gradients* rung shows that accumulation changes nothing.
    """
    runs, dropout = recipe.trajectory, recipe.adapter.dropout or DEFAULT_DROPOUT
    plain, half = (Run(precision, accumulation=1, seed=recipe.seeds.dropout) for precision in ("f32", "bf16"))
    return [
        Member("f64", dataclasses.replace(plain, precision="f64")),
        *(Member(f"perturbed-{i}", plain, i) for i in range(runs.perturbed_runs)),
        *(Member(f"bf16-{i}", dataclasses.replace(half, rounding=i or None)) for i in range(runs.bf16_runs)),
        *(
            Member(f"dropout-{i}", dataclasses.replace(plain, seed=plain.seed + i), dropout=dropout)
            for i in range(runs.dropout_pairs)
        ),
        *(  # beside the first pair, whose seed it has
            Member(f"rate-{OTHER_RATE}", dataclasses.replace(plain, rate=OTHER_RATE), dropout=dropout)
            for _ in range(min(1, runs.dropout_pairs))
        ),
    ]


def run_member(session: Session, member: Member) -> list[StepLine]:
    start = session.initial if member.perturbation is None else perturbed(session.initial, member.perturbation)
    return session.recorded_run(start, member.run, label=member.name, dropout=member.dropout).steps


def record_trajectory(session: Session, writer: BundleWriter) -> None:
    main: Recorder = session.main_run
    main.write_run(writer, "f32", session.recipe.adapter.dropout)
    main.write_adapters(writer)
    for member, steps in _run_all(session):
        writer.line(
            "trajectory", "run", run=member.name, precision=member.run.precision, seed=member.run.seed, dropout=member.dropout
        )
        write_steps(writer, member.name, steps)


def _run_all(session: Session) -> list[tuple[Member, list[StepLine]]]:
    """Every member's steps. Other processes take members from the front, this one those not yet begun from the back."""
    chosen = members(session.recipe)
    futures = session.members or [Future() for _ in chosen]
    pairs = list(zip(chosen, futures, strict=True))
    own = {member.name: run_member(session, member) for member, future in reversed(pairs) if future.cancel()}
    return [(member, own[member.name] if member.name in own else future.result()) for member, future in pairs]


def start_members(recipe: Recipe, progress: Progress, jobs: int) -> tuple[ProcessPoolExecutor, list[Future]]:
    """Starts the repeated runs in `jobs` - 1 further processes, longest first as listed."""
    pool = ProcessPoolExecutor(jobs - 1, mp_context=get_context("spawn"), initializer=_prepare_worker)
    return pool, [pool.submit(_member_alone, recipe, member, progress) for member in members(recipe)]


def _prepare_worker() -> None:
    """A process that takes only what the recorders leave free: both of them would wait for each other at the end."""
    os.nice(19)
    prepare_process()


def _member_alone(recipe: Recipe, member: Member, progress: Progress) -> list[StepLine]:
    with Session(recipe, progress) as session:
        return run_member(session, member)
