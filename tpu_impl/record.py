"""Records a recipe: one function a rung, each writing what docs/bundle.md names for it."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, Speaker, check_rungs, timed
from conformance.contract.recipe import Recipe
from tpu_impl.environment import environment, prepare_process
from tpu_impl.record_after import record_checkpoint, record_exchange, record_generation, record_merge
from tpu_impl.record_inputs import record_batches, record_tokens
from tpu_impl.record_model import record_adapters, record_logits, record_weights
from tpu_impl.record_sharding import record_sharding
from tpu_impl.record_training import record_gradients, record_one_step, record_optimizer, record_trajectory
from tpu_impl.session import Session

say = Speaker("port")

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


def record(recipe: Recipe, out: Path, rungs: Iterable[str] | None = None, progress: Progress = say) -> None:
    """Writes the bundle `out`, whole or not at all. Several processes need it on a disk that they share."""
    chosen = check_rungs(rungs, RUNGS)
    prepare_process()
    with shared_folder(out) as shared, Session(recipe, progress, shared) as session:
        path = out if jax.process_index() == 0 else session.scratch / "bundle"  # every process reads, the first one writes
        with BundleWriter(path, stack="port", recipe=recipe, plan=session.plan) as writer:
            for rung in chosen:
                with timed(progress, rung):
                    RUNGS[rung](session, writer)
            writer.manifest(**environment())


@contextmanager
def shared_folder(out: Path) -> Iterator[Path | None]:
    """Beside `out`, for as long as several processes record; None for a single one."""
    if jax.process_count() == 1:
        yield None
        return
    folder = out.with_name(f".{out.name}-shared")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if jax.process_index() == 0:
            shutil.rmtree(folder, ignore_errors=True)


def exchange(bundle: Path, peer: Path, progress: Progress = say) -> None:
    """The second phase: adds `exchange/` to `bundle`, from the files of `peer`."""
    prepare_process()
    ours, theirs = Bundle(bundle), Bundle(peer)
    recipe = ours.recipe
    if theirs.manifest["recipe_sha256"] != recipe.digest:
        raise ContractError(f"bundle {peer} is of recipe {theirs.manifest['recipe_sha256'][:12]}, not {recipe.digest[:12]}")
    with timed(progress, "exchange"), Session(recipe, progress) as session:
        record_exchange(session, ours, theirs)
