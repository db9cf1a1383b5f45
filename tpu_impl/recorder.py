"""Records a training run of anybody's PeftTrainer:

    from tpu_impl.recorder import Recorder
    Recorder("bundle", recipe).attach(trainer)
    trainer.train(dataset)
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tunix.sft import hooks
from tunix.sft.peft_trainer import PeftTrainer

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_array, sha256_bytes
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, Plan, make_plan
from conformance.contract.progress import Progress, is_due, silent
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import RUN_OF, UNKNOWN, Consumed, StepLine, write_batches, write_steps
from tpu_impl.adapter import get_adapter
from tpu_impl.environment import environment
from tpu_impl.model import export_weights
from tpu_impl.optimizer import AdamState, ClipState, part_of
from tpu_impl.processes import gather
from tpu_impl.sharding import places_of

COLUMNS = ("rows", "tokens", "loss_tokens", "ids_sha256", "mask_sha256", "attended")  # of Consumed, an entry a row


class Recorder(hooks.TrainingHooks):
    """Notes what training consumes and does. With a `path` it writes a bundle of its own when training ends.

    A micro-batch is noted where PeftTrainer prepares the inputs of its step: a wrapped iterator would also see the batches
    that a resumed run skips.
    """

    def __init__(self, path: Path | str | None, recipe: Recipe, *, plan: Plan | None = None, progress: Progress = silent):
        self.path, self.recipe, self.plan, self.progress = path, recipe, plan or make_plan(recipe), progress
        self.consumed: list[Consumed] = []
        self.steps: list[StepLine] = []
        self.initial: dict[str, np.ndarray] = {}
        self.final: dict[str, np.ndarray] = {}
        self.frozen_before: dict[str, str] = {}
        self.frozen_after: dict[str, str] = {}
        self._row_of = {row.ids.tobytes(): row.row for row in self.plan.rows}
        self._open: dict[int, list[dict]] = defaultdict(list)  # step -> its rows so far, of this process
        self._shown: deque[tuple[float, float]] = deque()
        self._noted = 0

    def attach(self, trainer: PeftTrainer) -> "Recorder":
        self.trainer = trainer
        prepare = trainer._prepare_inputs

        def prepare_inputs(inputs):
            self._consume(trainer.gen_model_input_fn(inputs))
            return prepare(inputs)

        trainer._prepare_inputs = prepare_inputs
        trainer.with_training_hooks(self)
        return self

    def on_train_start(self, trainer) -> None:
        self.initial, self.frozen_before = get_adapter(trainer.model), self._digests()
        self._first = self._noted = trainer.train_steps

    def on_train_step_start(self, trainer) -> None:
        self._note_optimizer(trainer)

    def on_train_step_end(self, trainer, train_step: int, train_loss: float) -> None:
        """Called a step late, with the number of steps done at the end of the step that it is about."""
        self._note_optimizer(trainer)
        step = train_step - 1
        norm, rate = self._shown.popleft()
        mean_norm = trainer._prev_buffered_train_metrics.additional_metrics["grad_norm"][0]
        consumed = list(_consumed(step, self._open.pop(step)))
        counts = [sum(sum(getattr(one, key)) for one in consumed) for key in ("tokens", "loss_tokens")]
        rows = sum(row != EMPTY for one in consumed for row in one.rows)
        norm = float(np.mean([float(one) for one in mean_norm])) if norm is None else norm  # bfloat16 scalars too
        self.note(StepLine(step, float(train_loss), norm, rate, rows, *counts), consumed)
        if is_due(train_step, self.plan.total_steps):
            self.progress(f"step {train_step}/{self.plan.total_steps} loss {train_loss:.4f}")
        if self._ended and not self._open:
            self._finish()

    def note(self, line: StepLine, consumed: list[Consumed]) -> None:
        """A step is known whole."""
        self.consumed += consumed
        self.steps.append(line)

    def on_train_end(self, trainer) -> None:
        self._note_optimizer(trainer)
        self.final, self.frozen_after = get_adapter(trainer.model), self._digests()
        self._ended = True

    _ended = False

    def on_eval_step_start(self, trainer) -> None:
        """Evaluation is not recorded."""

    def on_eval_step_end(self, trainer, eval_loss: float) -> None:
        """Evaluation is not recorded."""

    def write(self, writer: BundleWriter) -> None:
        """Everything noted, as the rungs *batches*, *adapters* (frozen weights) and *trajectory* name it."""
        self.write_batches(writer)
        self.write_frozen(writer)
        self.write_run(writer, RUN_OF[self.recipe.precision.compute], self.recipe.seeds.dropout, self.recipe.adapter.dropout)
        self.write_adapters(writer)

    def write_adapters(self, writer: BundleWriter) -> None:
        for when, tensors in (("initial", self.initial), ("final", self.final)):
            for name, value in tensors.items():
                writer.array("trajectory", f"f32/{when}/{name}", value.astype(np.float32))

    def write_batches(self, writer: BundleWriter) -> None:
        write_batches(writer, self.consumed, self.steps)

    def write_frozen(self, writer: BundleWriter) -> None:
        for name, before in self.frozen_before.items():
            writer.line("adapters", "frozen", name=name, sha256_before=before, sha256_after=self.frozen_after[name])

    def write_run(self, writer: BundleWriter, run: str, seed: int, dropout: float) -> None:
        writer.line("trajectory", "run", run=run, precision=run.split("-")[0], seed=seed, dropout=dropout)
        write_steps(writer, run, self.steps)

    def _finish(self) -> None:
        if self.path:
            with BundleWriter(self.path, stack="port", recipe=self.recipe, plan=self.plan) as writer:
                self.write(writer)
                writer.manifest(**environment())

    def _digests(self) -> dict[str, str]:
        return {name: sha256_array(value) for name, value in export_weights(self.trainer.model).items()}

    def _note_optimizer(self, trainer) -> None:
        """Once a step: norm (None where the chain shows none) and rate, read before the next step overwrites them."""
        if trainer.train_steps == self._noted:
            return
        self._noted = trainer.train_steps
        clip, adam = (part_of(trainer.optimizer.opt_state, kind) for kind in (ClipState, AdamState))
        rate = adam.learning_rate[...] if adam else trainer._try_get_learning_rate()
        if rate is None:
            raise ContractError("the optimizer shows no learning rate: wrap it as optax.inject_hyperparams(optax.adamw)(...)")
        self._shown.append((float(clip.grad_norm[...]) if clip else None, float(rate)))

    def _consume(self, inputs: dict) -> None:
        ids_BT, mask_BT, attended_BT = (np.asarray(part(inputs)) for part in (_ids, _loss_mask, _attended))
        trainer, shards = self.trainer, self.recipe.batch.shards
        micro = trainer.iter_steps % trainer.config.get_with_default("gradient_accumulation_steps", 1)
        own, whole = places_of(len(ids_BT))
        shard_of = np.repeat(np.arange(shards), [len(places) for places in np.array_split(np.arange(whole), shards)])
        for row, place in enumerate(own):
            about = {"micro": int(micro), "shard": int(shard_of[place]), "place": int(place), "width": ids_BT.shape[1]}
            self._open[trainer.train_steps].append(about | self._row(ids_BT[row], mask_BT[row], attended_BT[row]))

    def _row(self, ids_T: np.ndarray, mask_T: np.ndarray, attended_T: np.ndarray) -> dict:
        """One row's entries. Padding is cut by its id, so that an attention mask over it shows in `attended`."""
        real = np.flatnonzero(ids_T != self.plan.pad_id)
        inside = slice(real[0], real[-1] + 1) if len(real) else slice(0)
        ids, mask = ids_T[inside].astype(np.int32), (mask_T[inside] > 0).astype(np.uint8)
        row = self._row_of.get(ids.tobytes(), EMPTY if not mask_T.any() else UNKNOWN)
        digests = {"ids_sha256": sha256_bytes(ids.tobytes()), "mask_sha256": sha256_bytes(mask.tobytes())}
        counts = {"tokens": len(ids), "loss_tokens": int((mask_T > 0).sum()), "attended": int(attended_T.sum())}
        return {"rows": row, "pad_side": _pad_side(attended_T)} | counts | digests


def _consumed(step: int, own: list[dict]) -> Iterator[Consumed]:
    """A step's micro-batches by shard, out of the rows of all processes; a row that two of them hold counts once."""
    rows = {(row["micro"], row["shard"], row["place"]): row for rows in gather(own) for row in rows}
    for (micro, shard), keys in itertools.groupby(sorted(rows), key=lambda key: key[:2]):
        found = [rows[key] for key in keys]
        sides = {row["pad_side"] for row in found} - {"none"}
        columns = {name: [row[name] for row in found] for name in COLUMNS}
        yield Consumed(step, micro, shard, width=found[0]["width"], pad_side="+".join(sorted(sides)) or "none", **columns)


def _ids(inputs: dict):
    return inputs["input_tokens"]


def _loss_mask(inputs: dict):
    """[B,T], above 0 at targets: our own weight, or Tunix's `input_mask`."""
    return inputs.get("loss_weight", inputs.get("input_mask"))


def _attended(inputs: dict):
    """bool [B,T]: our own mask, or the keys that any query of Tunix's `attention_mask` [B,T,T] sees."""
    return inputs["attended"] if "attended" in inputs else np.asarray(inputs["attention_mask"]).any(1)


def _pad_side(attended_T: np.ndarray) -> str:
    if attended_T.all() or not attended_T.any():
        return "none"
    return "right" if attended_T[0] else "left"
