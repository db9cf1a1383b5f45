"""Training: Tunix's PeftTrainer, with the port's jitted functions and whole checkpoints."""

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tunix.sft import peft_trainer

from conformance.contract.plan import Plan, Step
from conformance.contract.recipe import Recipe
from tpu_impl.adapter import get_adapter
from tpu_impl.corrections import ALL, Corrections
from tpu_impl.data import Batch, TokenisedRow, arrange
from tpu_impl.optimizer import Chain, ClipState, part_of, recipe_chain
from tpu_impl.saver import checkpointing
from tpu_impl.sharding import ROWS, current_mesh, place_rows, shardings_of
from tpu_impl.step import apply_gradients, loss_and_gradients, token_loss


@dataclass(frozen=True, slots=True)
class Run:
    """How one run differs from the recipe's: precision, split of the batch, steps, dropout, saving."""

    precision: str = "f32"
    accumulation: int | None = None  # None: the recipe's
    steps: int | None = None  # None: all of the plan's
    dropout: float = 0.0  # the model's own rate, recorded here
    seed: int = 0  # of dropout
    remat: str = "none"
    save_every: int | None = None


class Held:
    """The variables of a structure, to read and write all at once."""

    def __init__(self, structure):
        self._variables = jax.tree.leaves(structure, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
        self._pure = jax.tree.structure(nnx.as_pure(structure))

    def read(self):
        return jax.tree.unflatten(self._pure, [variable.get_raw_value() for variable in self._variables])

    def write(self, value) -> None:
        for variable, leaf in zip(self._variables, jax.tree.leaves(value), strict=True):
            variable.set_raw_value(leaf)

    def unpin(self) -> None:
        """Takes arrays off the one device that Orbax pins them to; those on a mesh keep their sharding.

        Stock: jit compiles the whole step once more for pinned inputs.
        """
        self.write(jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if _on_one_device(leaf) else leaf, self.read()))


def _on_one_device(leaf) -> bool:
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) == 1


class Trainer(peft_trainer.PeftTrainer):
    """PeftTrainer whose step is two jitted functions that all trainers share; it saves and restores the data position.

    Stock: each trainer compiles a step of its own, returns the frozen weights from it, skips the rows of a restored run by
    loading them, and leaves the metadata out of the last checkpoint.
    """

    def __init__(self, model, chain: Chain, config: peft_trainer.TrainingConfig, corrections: Corrections = ALL):
        self._corrections, self._data = corrections, None
        super().__init__(model, chain.transformation(), config)
        # The same transformation that super() has just initialised, but one object for all trainers.
        self.optimizer.tx = chain.accumulated(config.gradient_accumulation_steps)
        self.with_loss_fn(token_loss)
        if self._train_steps and not current_mesh():  # restored
            for structure in (nnx.state(model, nnx.LoRAParam), self.optimizer.opt_state):
                Held(structure).unpin()

    def jit_train_and_eval_step(self, skip_jit: bool = False, cache_nnx_graph: bool = False):
        """Splits the model once: walking its graph takes longer than a step of a small model."""
        graphdef, lora, frozen = nnx.split(self.model, nnx.LoRAParam, ...)
        self._shard_optimizer(current_mesh())
        held = [Held(nnx.state(self.model, nnx.LoRAParam)), Held(self.optimizer.opt_state)]
        self._shardings = shardings_of([one.read() for one in held])
        return functools.partial(self._step, graphdef, jax.tree.structure(lora), frozen, held), None

    def _shard_optimizer(self, mesh) -> None:
        """Moments and accumulator already lie as the adapters that they were made from; Tunix spreads the scalars."""
        if mesh is not None:
            super()._shard_optimizer(mesh)
            # XLA's CPU devices share a few threads and queue 32 programs each: a step that starts behind hundreds of
            # unfinished small ones waits for a device whose queue is full, and that one for a thread, forever.
            jax.block_until_ready(nnx.state((self.model, self.optimizer)))

    def _prepare_inputs(self, inputs: Batch) -> dict[str, jax.Array]:
        return place_rows(inputs) if self._corrections.whole_rows else inputs

    def _step(self, graphdef, structure, frozen, held: list["Held"], inputs: Batch):
        """(loss, None, gradient norm of the last whole step) of one micro-batch."""
        params, state = (one.read() for one in held)
        lora = jax.tree.unflatten(structure, jax.tree.leaves(params))
        loss, grads = loss_and_gradients(graphdef, lora, frozen, self.gen_model_input_fn(inputs))
        moved = apply_gradients(self.optimizer.tx, params, state, nnx.as_pure(grads), self._shardings)
        for one, value in zip(held, moved, strict=True):
            one.write(value)
        return loss, None, part_of(moved[1], ClipState).grad_norm

    def train(self, train_ds: grain.MapDataset, eval_ds=None, skip_jit: bool = True, **kwargs) -> None:
        """`skip_jit` is how PeftTrainer takes a step that is jitted already."""
        self._data = iter(train_ds.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))
        super().train(self._resumed(), eval_ds, skip_jit=True, **kwargs)

    def _resumed(self) -> Iterable[Batch]:
        """PeftTrainer drops as many batches as were trained on: it gets empty ones, the loader starts at its saved position."""
        if self._restored_custom_metadata:
            self._data.set_state(self._restored_custom_metadata["data"])
            return itertools.chain(itertools.repeat({}, self._iter_steps), self._data)
        return self._data

    @property
    def saved_step(self) -> int | None:
        """The steps whose rows were consumed, as the restored save says; None: it says nothing."""
        position = self._restored_custom_metadata.get("data")
        return position and position["next_index"] // self.config.get_with_default("gradient_accumulation_steps", 1)

    def custom_checkpoint_metadata(self) -> dict:
        """The data position; dropout has none of its own, because its masks follow from the micro-batch's number."""
        return {"data": self._data.get_state()} if self._data is not None else {}

    def _save_last_checkpoint(self) -> None:
        if not self._corrections.whole_metadata:
            super()._save_last_checkpoint()
        elif (self.checkpoint_manager.latest_step() or 0) < self._train_steps:
            metadata = self.custom_checkpoint_metadata()
            save = self.checkpoint_manager.save
            save(self._train_steps, self.model, self.optimizer, save_only_lora_params=True, force=True, custom_metadata=metadata)


def trainer_config(recipe: Recipe, run: Run, out: Path | None) -> peft_trainer.TrainingConfig:
    """`max_steps` stays unset: the data decide the number of steps, and PeftTrainer draws no bar."""
    saving = run.save_every is not None
    return peft_trainer.TrainingConfig(
        eval_every_n_steps=10**9,
        gradient_accumulation_steps=run.accumulation or recipe.batch.accumulation,
        checkpoint_root_directory=str(out) if saving else None,
        checkpointing_options=checkpointing(run.save_every) if saving else None,
        data_sharding_axis=(ROWS,),
    )


def make_trainer(model, plan: Plan, run: Run, out: Path | None = None, corrections: Corrections = ALL) -> Trainer:
    chain = recipe_chain(plan.recipe, plan.learning_rates, corrections)
    return Trainer(model, chain, trainer_config(plan.recipe, run, out), corrections)


def run_data(plan: Plan, rows: dict[int, TokenisedRow], run: Run, corrections: Corrections = ALL) -> grain.MapDataset:
    """The run's micro-batches."""
    seed = run.seed if run.dropout else None
    return arrange(rows, run_steps(plan, run), plan, dropout_seed=seed, corrections=corrections)


def run_steps(plan: Plan, run: Run) -> tuple[Step, ...]:
    steps = plan.with_batch(run.accumulation, plan.recipe.batch.shards) if run.accumulation else plan.steps
    return steps[: run.steps]


def train(trainer: Trainer, data: grain.MapDataset) -> dict[str, np.ndarray]:
    """Runs the trainer from where it stands and returns the adapter."""
    trainer.train(data)
    return get_adapter(trainer.model)
