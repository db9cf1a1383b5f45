"""Records the rung *sharding*: the same steps in one process and as two FSDP2 processes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.sharding import sharding_recipe
from reference.session import Session
from reference.sharding import Job, Observed, observe, observe_processes

RANKS = 2


def record_sharding(session: Session, writer: BundleWriter) -> None:
    """The processes start while the one process works: they import for a third of their time."""
    job = Job(sharding_recipe(session.recipe), session.rows, session.scratch)
    with ThreadPoolExecutor(1) as pool, Session(job.recipe, session.progress) as alone:
        several = pool.submit(observe_processes, RANKS, job, session.progress)
        alone.rows = job.rows
        write_mesh(writer, 1, observe(alone, "ranks=1"))
        write_mesh(writer, RANKS, several.result())


def write_mesh(writer: BundleWriter, ranks: int, observed: Observed) -> None:
    mesh, warm = f"ranks={ranks}", observed.warm
    for tensor, value in warm.gradients.items():
        writer.array("sharding", f"{mesh}/{tensor}", value)
    writer.line(
        "sharding", "warm", mesh=mesh, devices=ranks, processes=ranks, loss=warm.loss, grad_norm=warm.grad_norm,
        factor=observed.factor, compiles=0,
    )  # fmt: skip
    for line, rows in zip(observed.steps, observed.shard_rows, strict=True):
        counts = {"tokens": line.tokens, "loss_tokens": line.loss_tokens}
        writer.line("sharding", "consumed", mesh=mesh, step=line.step, shard_rows=rows, **counts)
        measured = {"loss": line.loss, "grad_norm": line.grad_norm, "learning_rate": line.learning_rate}
        writer.line("sharding", "step", mesh=mesh, step=line.step, **measured)
    for leaf in observed.leaves:
        writer.line("sharding", "leaf", mesh=mesh, **asdict(leaf))
