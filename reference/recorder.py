"""Records a training run of anybody's SFTTrainer:

    from reference.recorder import Recorder
    Recorder("bundle", recipe).attach(trainer)
    trainer.train()
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_array, sha256_bytes, tensor_bytes
from conformance.contract.plan import EMPTY, Plan, make_plan
from conformance.contract.progress import Progress, is_due, silent
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import RUN_OF, UNKNOWN, Consumed, StepLine, write_batches, write_steps
from reference.adapter import get_adapter
from reference.data import IGNORED, RowFinder, order_of
from reference.environment import environment
from reference.model import each_weight, whole


class Recorder(TrainerCallback):
    """Notes what training consumes and does. With a `path` it writes a bundle of its own when training ends.

    Consumption is noted in `training_step`: accelerate's loader has already collated the next batch by then.
    """

    def __init__(self, path: Path | str | None, recipe: Recipe, *, plan: Plan | None = None, progress: Progress = silent):
        self.path, self.recipe, self.plan, self.progress = path, recipe, plan or make_plan(recipe), progress
        self.consumed: list[Consumed] = []
        self.steps: list[StepLine] = []
        self.initial: dict[str, np.ndarray] = {}
        self.final: dict[str, np.ndarray] = {}
        self.frozen_before: dict[str, str] = {}
        self.frozen_after: dict[str, str] = {}
        self._micro: list[tuple[Consumed, float]] = []
        self._grad_norm = self._learning_rate = float("nan")

    def attach(self, trainer: Trainer) -> "Recorder":
        self.trainer, self._finder = trainer, RowFinder(self.plan, order_of(self.plan, trainer.args))
        step, clip = trainer.training_step, trainer.accelerator.clip_grad_norm_

        def training_step(model, inputs, *args, **kwargs):
            taken = self.take(inputs)
            loss = step(model, inputs, *args, **kwargs)
            self._micro.append((taken, self.value(loss)))
            return loss

        def clip_grad_norm(*args, **kwargs):
            norm = clip(*args, **kwargs)
            self._grad_norm = self.value(norm)
            return norm

        trainer.training_step, trainer.accelerator.clip_grad_norm_ = training_step, clip_grad_norm
        trainer.add_callback(self)
        return self

    def take(self, inputs: dict[str, torch.Tensor]) -> Consumed:
        """What is kept of a micro-batch, before the step has it."""
        return self._consume(inputs, self.trainer.state.global_step, len(self._micro))

    def value(self, scalar: torch.Tensor) -> float:
        """What is kept of a loss or norm: reading it waits for the device."""
        return float(whole(scalar))

    def note(self, line: StepLine, consumed: list[Consumed]) -> None:
        """A step has ended."""
        self.consumed += consumed
        self.steps.append(line)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self.initial = get_adapter(self.trainer.model)
        self.frozen_before = self._digests()

    def on_pre_optimizer_step(self, args, state, control, optimizer, **kwargs) -> None:
        self._learning_rate = float(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args, state, control, **kwargs) -> None:
        shards = gather_object(self._micro)
        self._micro = []
        consumed = sorted((consumed for consumed, _ in shards), key=lambda one: (one.micro, one.shard))
        line = self._step_line(shards, args.world_size)
        self.note(line, consumed)
        if is_due(state.global_step, state.max_steps):
            self.progress(f"step {state.global_step}/{state.max_steps} loss {line.loss:.4f}")

    def on_train_end(self, args, state, control, **kwargs) -> None:
        self.final = get_adapter(self.trainer.model)
        self.frozen_after = self._digests()
        if self.path and state.is_world_process_zero:
            with BundleWriter(self.path, stack="reference", recipe=self.recipe, plan=self.plan) as writer:
                self.write(writer)
                writer.manifest(**environment())

    def write(self, writer: BundleWriter) -> None:
        """Everything noted, as the rungs *batches*, *adapters* (frozen weights) and *trajectory* name it."""
        self.write_batches(writer)
        self.write_frozen(writer)
        self.write_run(writer, RUN_OF[self.recipe.precision.compute], self.recipe.adapter.dropout)
        self.write_adapters(writer)

    def write_batches(self, writer: BundleWriter) -> None:
        write_batches(writer, self.consumed, self.steps)

    def write_frozen(self, writer: BundleWriter) -> None:
        for name, before in self.frozen_before.items():
            writer.line("adapters", "frozen", name=name, sha256_before=before, sha256_after=self.frozen_after[name])

    def write_run(self, writer: BundleWriter, run: str, dropout: float) -> None:
        writer.line("trajectory", "run", run=run, precision=run.split("-")[0], seed=self.trainer.args.seed, dropout=dropout)
        write_steps(writer, run, self.steps)

    def write_adapters(self, writer: BundleWriter) -> None:
        for when, tensors in (("initial", self.initial), ("final", self.final)):
            for name, value in tensors.items():
                writer.array("trajectory", f"f32/{when}/{name}", value.astype(np.float32))

    def _digests(self) -> dict[str, str]:
        return {name: sha256_array(value) for name, value in each_weight(self.trainer.model)}

    def _consume(self, inputs: dict[str, torch.Tensor], step: int, micro: int) -> Consumed:
        attention = inputs["attention_mask"].cpu().numpy()
        ids, labels = inputs["input_ids"].cpu().numpy(), inputs["labels"].cpu().numpy()
        columns = defaultdict(list)
        for row_ids, row_labels, seen in zip(ids, labels, attention == 1, strict=True):
            for key, value in self._row(row_ids[seen], row_labels[seen]).items():
                columns[key].append(value)
        place = (step, micro, self.trainer.args.process_index)
        return Consumed(*place, width=ids.shape[1], pad_side=_pad_side(attention), **columns)

    def _row(self, ids: np.ndarray, labels: np.ndarray) -> dict:
        """One row's entries; ids and labels without padding."""
        ids, mask = ids.astype(np.int32), (labels != IGNORED).astype(np.uint8)
        mask[:1] = 0  # the shift by one never scores the first token
        row = self._finder.find(ids)
        if row is None and not mask.any():
            row, ids, mask = EMPTY, ids[:0], mask[:0]
        row = UNKNOWN if row is None else row
        counts = {"row": row, "tokens": len(ids), "loss_tokens": int(mask.sum()), "attended": len(ids)}
        digests = {"ids_sha256": sha256_bytes(tensor_bytes(ids)), "mask_sha256": sha256_bytes(tensor_bytes(mask))}
        return {"rows" if key == "row" else key: value for key, value in (counts | digests).items()}

    def _step_line(self, shards: list[tuple[Consumed, float]], world: int) -> StepLine:
        # accelerate averages gradients over processes, so each process scales its loss by their number.
        loss = sum(loss for _, loss in shards) / world
        rows = [row for one, _ in shards for row in one.rows if row != EMPTY]
        tokens, targets = (sum(sum(getattr(one, key)) for one, _ in shards) for key in ("tokens", "loss_tokens"))
        step = shards[0][0].step
        return StepLine(step, loss, self._grad_norm, self._learning_rate, len(rows), tokens, targets)


def _pad_side(attention_BT: np.ndarray) -> str:
    if attention_BT.all():
        return "none"
    return "right" if attention_BT[:, 0].all() else "left"
