"""Records a recipe: one function a rung, each writing what docs/bundle.md names for it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, Speaker, check_rungs, timed
from conformance.contract.recipe import Recipe
from reference.environment import environment, prepare_process
from reference.record_after import record_checkpoint, record_exchange, record_generation, record_merge
from reference.record_inputs import record_batches, record_tokens
from reference.record_model import record_adapters, record_logits, record_weights
from reference.record_sharding import record_sharding
from reference.record_training import record_gradients, record_one_step, record_optimizer, record_trajectory, start_members
from reference.session import Session

say = Speaker("reference")

RUNGS: dict[str, Callable[[Session, BundleWriter], None]] = {
    "tokens": record_tokens,
    "batches": record_batches,
    "weights": record_weights,
    "adapters": record_adapters,
    "logits": record_logits,
    "gradients": record_gradients,
    "optimizer": record_optimizer,
    "one_step": record_one_step,
    "trajectory": record_trajectory,
    "sharding": record_sharding,
    "checkpoint": record_checkpoint,
    "merge": record_merge,
    "generation": record_generation,
}


def record(recipe: Recipe, out: Path, rungs: Iterable[str] | None = None, progress: Progress = say, jobs: int = 1) -> None:
    """Writes the bundle `out`, whole or not at all; `jobs` > 1 runs the repeated trainings in further processes."""
    chosen = check_rungs(rungs, RUNGS)
    prepare_process()
    processes = jobs if "trajectory" in chosen else 1
    with (
        _session(recipe, progress, processes) as session,
        BundleWriter(out, stack="reference", recipe=recipe, plan=session.plan) as writer,
    ):
        # The trajectory's runs may be under way in other processes meanwhile, so it comes last.
        for rung in sorted(chosen, key="trajectory".__eq__):
            with timed(progress, rung):
                RUNGS[rung](session, writer)
        writer.manifest(**environment())


def exchange(bundle: Path, peer: Path, progress: Progress = say) -> None:
    """The second phase: adds `exchange/` to `bundle`, from the files of `peer`."""
    prepare_process()
    ours, theirs = Bundle(bundle), Bundle(peer)
    recipe = ours.recipe
    if theirs.manifest["recipe_sha256"] != recipe.digest:
        raise ContractError(f"bundle {peer} is of recipe {theirs.manifest['recipe_sha256'][:12]}, not {recipe.digest[:12]}")
    with timed(progress, "exchange"), Session(recipe, progress) as session:
        record_exchange(session, ours, theirs)


@contextmanager
def _session(recipe: Recipe, progress: Progress, jobs: int) -> Iterator[Session]:
    if jobs == 1:
        with Session(recipe, progress) as session:
            yield session
        return
    pool, members = start_members(recipe, progress, jobs)
    try:
        with Session(recipe, progress, members) as session:
            yield session
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
