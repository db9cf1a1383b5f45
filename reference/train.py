"""Training: TRL's SFTTrainer as the recipe's users run it, with five named corrections."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan
from conformance.contract.recipe import Batch, Recipe
from reference.adapter import get_adapter
from reference.data import TokenisedRow, arrange
from reference.oracle import NoFloat32, arithmetic
from reference.processes import processes
from reference.saver import partial_of, write_whole


@dataclass(frozen=True, slots=True)
class Run:
    """How one run differs from the recipe's: precision, split of the batch, gradient checkpointing, steps, saving."""

    precision: str = "f32"
    accumulation: int | None = None  # None: the recipe's
    checkpointing: bool = False
    steps: int | None = None  # None: all of the plan's
    save_every: int | None = None
    seed: int = 0  # of dropout
    rate: float = 1.0  # times every learning rate: what the statistical checks must see
    rounding: int | None = None  # seed of stochastic rounding of bfloat16 products; None: to the nearest


class ReferenceTrainer(SFTTrainer):
    """SFTTrainer with the recipe's row order and learning rates, token-weighted loss, sums in float32, whole checkpoints and a
    float64 loss."""

    def __init__(self, *, learning_rates: np.ndarray, token_weighted: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.learning_rates = learning_rates
        self._staging: str | None = None
        # Stock: Gemma4ForConditionalGeneration says accepts_loss_kwargs = False, so the Trainer counts no tokens and TRL
        # averages the micro-batches' means: ragged micro-batches weigh alike whatever their number of targets.
        self.model_accepts_loss_kwargs = token_weighted
        if self.is_fsdp_enabled and self.args.bf16:
            # Stock: accelerate's bf16 policy also sums the processes' gradients in bf16, and rounds what the root module returns,
            # TRL's log-probabilities, to bf16: the loss is 1.5e-3 off. Here: products in bf16, sums in float32, as in one process.
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            self.accelerator.state.fsdp_plugin.mixed_precision_policy = policy

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def create_scheduler(self, num_training_steps: int, optimizer=None) -> LambdaLR:
        """The contract's table in float32: transformers' own cosine differs from optax's on three steps of four."""
        if self.lr_scheduler is None:
            optimizer = optimizer or self.optimizer
            for group in optimizer.param_groups:
                group["initial_lr"] = 1.0  # LambdaLR multiplies by it
            table = [float(rate) for rate in self.learning_rates.astype(np.float32)]
            self.lr_scheduler = LambdaLR(optimizer, lambda step: table[min(step, len(table) - 1)])
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """TRL's; in float64 from the logits, because TRL's fused head keeps its sums in float32."""
        if self.model.dtype != torch.float64:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs.pop("labels")
        with NoFloat32():
            logits = model(**inputs, use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        return losses / num_items_in_batch

    def _get_output_dir(self, trial) -> str:
        return self._staging or super()._get_output_dir(trial)

    def _save_checkpoint(self, model, trial) -> None:
        """Stock: writes in place, and `get_last_checkpoint` takes the newest folder, whole or not. Here: beside, then renamed."""
        target = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"

        def write(partial: Path) -> None:
            self._staging = str(partial)
            self.accelerator.wait_for_everyone()  # the folder is there
            super(ReferenceTrainer, self)._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # every process has written its shards
            self._staging = None

        def write_and_lift(partial: Path) -> None:
            write(partial)
            for path in (partial / target.name).iterdir():
                shutil.move(path, partial / path.name)
            (partial / target.name).rmdir()

        if self.is_world_process_zero():
            write_whole(target, write_and_lift)
        else:
            write(partial_of(target))
        self.accelerator.wait_for_everyone()  # the checkpoint stands under its name


def split_batch(batch: Batch, world: int, accumulation: int | None = None) -> tuple[int, int]:
    """(rows of a process's micro-batch, micro-batches of a step): the effective batch stays whatever the number of processes."""
    accumulation = accumulation or max(1, batch.accumulation * batch.shards // world)
    if batch.effective % (accumulation * world):
        parts = f"{world} processes x {accumulation} micro-batches"
        raise ContractError(f"an effective batch of {batch.effective} rows cannot be split over {parts}")
    return batch.effective // (accumulation * world), accumulation


def trainer_config(recipe: Recipe, run: Run, out: Path) -> SFTConfig:
    """TRL's own defaults stay wherever the recipe is silent (optimizer: torch's fused AdamW; bf16: autocast)."""
    optimizer = recipe.optimizer
    micro_batch, accumulation = split_batch(recipe.batch, processes(), run.accumulation)
    return SFTConfig(
        output_dir=str(out), seed=run.seed, data_seed=recipe.seeds.data, max_length=recipe.data.max_tokens,
        per_device_train_batch_size=micro_batch, gradient_accumulation_steps=accumulation,
        learning_rate=optimizer.learning_rate, weight_decay=optimizer.weight_decay, adam_beta1=optimizer.beta1,
        adam_beta2=optimizer.beta2, adam_epsilon=optimizer.eps, max_grad_norm=optimizer.clip_norm or 0.0,
        bf16=run.precision == "bf16", use_cpu=not torch.cuda.is_available(), gradient_checkpointing=run.checkpointing,
        max_steps=run.steps or -1, num_train_epochs=1, logging_steps=1, logging_nan_inf_filter=False,
        save_strategy="steps" if run.save_every else "no", save_steps=run.save_every or 500,
        dataset_kwargs={"skip_prepare_dataset": True}, report_to=[], disable_tqdm=True,
    )  # fmt: skip


def make_trainer(
    model, plan: Plan, rows: dict[int, TokenisedRow], tokenizer: PreTrainedTokenizerBase, run: Run, out: Path,
    *, token_weighted: bool = True, callbacks: tuple[TrainerCallback, ...] = (),
) -> ReferenceTrainer:  # fmt: skip
    """A trainer over the plan's rows; the last step is filled with empty rows, which TRL's preparation would drop."""
    args = trainer_config(plan.recipe, run, out)
    steps = plan.with_batch(args.gradient_accumulation_steps, processes())
    trainer = ReferenceTrainer(
        model=model, args=args, train_dataset=arrange(rows, steps, plan.pad_id), processing_class=tokenizer,
        learning_rates=run.rate * plan.learning_rates, token_weighted=token_weighted, callbacks=list(callbacks),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)  # it prints every step's dictionary to stdout
    return trainer


def train(
    trainer: ReferenceTrainer, precision: str = "f32", resume: Path | None = None, *, rounding: int | None = None
) -> dict[str, np.ndarray]:
    """Runs the trainer from where it stands (dropout's stream from its seed) and returns the adapter."""
    torch.manual_seed(trainer.args.seed)
    with arithmetic(precision, trainer.args.device.type, rounding):
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    return get_adapter(trainer.model)
