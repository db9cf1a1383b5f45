"""Records the rungs *gradients*, *optimizer*, *one_step* and *trajectory*."""

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_array, sha256_json
from conformance.contract.optimizer_cases import optimizer_cases
from conformance.contract.plan import EMPTY, Step
from conformance.contract.run_record import DEFAULT_DROPOUT
from tpu_impl.adapter import set_remat
from tpu_impl.data import Batch, TokenisedRow, arrange, tokenise
from tpu_impl.session import Session
from tpu_impl.step import StepGradients, run_chain, step_gradients, warm_step
from tpu_impl.train import Run

ACCUMULATIONS = (1, 2, 4)
REMAT = ("block", "decoder", "ours")


def record_gradients(session: Session, writer: BundleWriter) -> None:
    record_warm(session, writer)
    record_orders(session, writer)
    for policy in REMAT:
        record_remat(session, writer, policy)
    record_cold(session, writer)


def record_warm(session: Session, writer: BundleWriter) -> None:
    found = step_gradients(session.adapted(session.warm.adapter), warm_batches(session))
    write_gradients(session, writer, "warm", found, prefix="f32")


def record_orders(session: Session, writer: BundleWriter) -> None:
    """The same step in other orders of summation, and with loss over the prompt too."""
    model = session.adapted(session.warm.adapter)
    for variant, batches in variant_batches(session).items():
        write_gradients(session, writer, variant, step_gradients(model, batches), prefix=f"f32.{variant}")


def record_remat(session: Session, writer: BundleWriter, policy: str) -> None:
    model = session.adapted(session.warm.adapter)
    set_remat(model, policy)
    write_gradients(session, writer, f"remat={policy}", step_gradients(model, warm_batches(session)), prefix=f"f32.remat={policy}")
    set_remat(model, "none")


def record_cold(session: Session, writer: BundleWriter) -> None:
    write_gradients(session, writer, "cold", step_gradients(session.adapted(session.initial), warm_batches(session)), prefix="cold")


def variant_batches(session: Session) -> dict[str, list[Batch]]:
    """The warm step's micro-batches: as the recipe splits them, split otherwise, and with loss over the prompt too."""
    effective = session.recipe.batch.effective
    splits = {f"accumulation={n}": n for n in ACCUMULATIONS if effective % n == 0} | {"batch=1": effective}
    unmasked = tokenise(session.plan, session.tokenizer, loss_scope="all")
    return {
        "remat=none": warm_batches(session),
        **{variant: warm_batches(session, accumulation) for variant, accumulation in splits.items()},
        "unmasked": warm_batches(session, rows=unmasked),
    }


def warm_batches(session: Session, accumulation: int | None = None, rows: dict[int, TokenisedRow] | None = None) -> list[Batch]:
    batch, plan = session.recipe.batch, session.plan
    step = plan.with_batch(accumulation or batch.accumulation * batch.shards, 1)[plan.warm_rows.index]
    return list(arrange(rows or session.rows, [_filled(step, batch.micro_batch * batch.shards)], plan))


def _filled(step: Step, rows: int) -> Step:
    """Micro-batches of fewer rows than the recipe's, completed with empty rows: they take the program that is compiled already."""
    return Step(step.index, tuple(((*micro[0], *(EMPTY,) * (rows - len(micro[0]))),) for micro in step.micros))


def write_gradients(session: Session, writer: BundleWriter, variant: str, found: StepGradients, *, prefix: str) -> None:
    session.progress(f"gradients {variant}: norm {found.grad_norm:.6g}")
    for tensor, value in found.gradients.items():
        writer.array("gradients", f"{prefix}/{tensor}", value)
    digests = {tensor: sha256_array(value) for tensor, value in found.gradients.items()}
    writer.line(
        "gradients", "norms", variant=variant, precision="f32", loss=found.loss, grad_norm=found.grad_norm,
        sha256=sha256_json(digests),
    )  # fmt: skip


def record_optimizer(session: Session, writer: BundleWriter) -> None:
    for case in optimizer_cases(session.recipe.optimizer.clip_norm):
        for index, step in enumerate(run_chain(session.recipe, case)):
            for key in ("update", "m", "v"):
                writer.array("optimizer", f"{case.name}/{index}/{key}", getattr(step, key))
            writer.line("optimizer", "clip", case=case.name, step=index, grad_norm=step.grad_norm, factor=step.clip_factor)


def record_one_step(session: Session, writer: BundleWriter) -> None:
    model = session.adapted(session.warm.adapter)
    moved, grad_norm = warm_step(model, session.recipe, session.warm, session.plan.learning_rates, warm_batches(session))
    for tensor, value in moved.items():
        writer.array("one_step", f"f32/{tensor}", value)
    writer.line("one_step", "norms", precision="f32", grad_norm=grad_norm)


def members(session: Session) -> dict[str, Run]:
    """The runs beside the main one: bfloat16, and seed-paired runs with dropout."""
    recipe, seed = session.recipe, session.recipe.seeds.dropout
    dropout = recipe.adapter.dropout or DEFAULT_DROPOUT
    pairs = range(recipe.trajectory.dropout_pairs)
    return {"bf16": Run("bf16", seed=seed)} | {f"dropout-{i}": Run(dropout=dropout, seed=seed + i) for i in pairs}


def record_trajectory(session: Session, writer: BundleWriter) -> None:
    record_main(session, writer)
    for name in members(session):
        record_member(session, writer, name)


def record_main(session: Session, writer: BundleWriter) -> None:
    session.main_run.write_run(writer, "f32", session.recipe.seeds.dropout, 0.0)
    session.main_run.write_adapters(writer)


def record_member(session: Session, writer: BundleWriter, name: str) -> None:
    run = members(session)[name]
    recorder, _ = session.recorded_run(session.initial, run, label=name)
    recorder.write_run(writer, name, run.seed, run.dropout)
