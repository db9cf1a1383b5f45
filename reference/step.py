"""Single optimizer steps through the trainer's own code: gradients, one warm step, the optimizer chain on given gradients."""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import Trainer

from conformance.contract.draws import Tensors, WarmState
from conformance.contract.optimizer_cases import OptimizerCase
from conformance.contract.plan import Step
from reference.adapter import adapter_parameters, get_adapter, set_adapter
from reference.data import TokenisedRow, collate
from reference.model import to_numpy
from reference.oracle import arithmetic
from reference.train import ReferenceTrainer

MOMENTS = {"m": "exp_avg", "v": "exp_avg_sq"}  # the bundle's names -> torch's


@dataclass(frozen=True, slots=True)
class StepGradients:
    """One optimizer step's loss, global gradient norm before clipping, and gradients by tensor name."""

    loss: float
    grad_norm: float
    gradients: dict[str, np.ndarray]


def micro_batches(step: Step, rows: dict[int, TokenisedRow], pad_id: int) -> list[dict[str, torch.Tensor]]:
    """The step's micro-batches, shard after shard."""
    return [collate([rows[row] for row in shard], pad_id) for micro in step.micros for shard in micro]


def step_gradients(trainer: ReferenceTrainer, batches: list[dict[str, torch.Tensor]], precision: str = "f32") -> StepGradients:
    """Forward and backward of one optimizer step, each micro-batch through the trainer's own training_step."""
    trainer.model.zero_grad()
    samples, targets = trainer.get_batch_samples(iter(batches), len(batches), trainer.args.device)
    trainer.current_gradient_accumulation_steps = len(samples)
    with arithmetic(precision, trainer.args.device.type):
        losses = [trainer.training_step(trainer.model, batch, targets) for batch in samples]
    parameters = adapter_parameters(trainer.model)
    norm = torch.nn.utils.get_total_norm([value.grad for value in parameters.values()])
    gradients = {name: to_numpy(value.grad) for name, value in parameters.items()}
    return StepGradients(float(sum(float(loss) for loss in losses)), float(norm), gradients)


def warm_step(
    trainer: ReferenceTrainer, warm: WarmState, batches: list[dict[str, torch.Tensor]], precision: str = "f32"
) -> tuple[Tensors, float]:
    """One optimizer step from the warm state: every adapter tensor, its `.m` and its `.v` after it; and the global gradient
    norm that the clip met."""
    set_adapter(trainer.model, warm.adapter)
    step_gradients(trainer, batches, precision)
    optimizer, parameters = trainer.create_optimizer(), adapter_parameters(trainer.model)
    set_moments(optimizer, parameters, warm.m, warm.v, warm.step)
    norm, _ = apply_step(optimizer, parameters, trainer.args.max_grad_norm, trainer.learning_rates[warm.step])
    return get_adapter(trainer.model) | get_moments(optimizer, parameters), norm


Parameters = dict[str, torch.nn.Parameter]


def set_moments(optimizer: torch.optim.Optimizer, parameters: Parameters, m: Tensors, v: Tensors, step: int) -> None:
    """Puts AdamW into mid-run: both moments and the count of steps already taken (its bias correction)."""
    for name, parameter in parameters.items():
        moments = {"exp_avg": m[name], "exp_avg_sq": v[name]}
        state = {key: torch.from_numpy(value.copy()).to(parameter) for key, value in moments.items()}
        optimizer.state[parameter] = {"step": torch.tensor(float(step)), **state}


def get_moments(optimizer: torch.optim.Optimizer, parameters: Parameters) -> Tensors:
    """`<tensor>.m` and `<tensor>.v` of every tensor."""
    return {
        f"{name}.{moment}": to_numpy(optimizer.state[parameter][key])
        for name, parameter in parameters.items()
        for moment, key in MOMENTS.items()
    }


def apply_step(optimizer: torch.optim.Optimizer, parameters: Parameters, clip_norm: float, rate: float) -> tuple[float, float]:
    """Clip, then step, as the Trainer does (accelerate calls this very clip): (norm before clipping, factor applied).

    The factor is measured on the largest gradient element, not computed. torch clips by norm + 1e-6.
    """
    largest = max((value.grad for value in parameters.values()), key=lambda grad: float(grad.abs().max()))
    before, place = float(largest.abs().max()), largest.abs().argmax()
    # As in the Trainer, clip_norm 0 means: measure, do not clip.
    norm = torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm or float("inf"))
    for group in optimizer.param_groups:
        group["lr"] = float(np.float32(rate))
    optimizer.step()
    return float(norm), abs(float(largest.flatten()[place])) / before


@dataclass(frozen=True, slots=True)
class ChainStep:
    """What one optimizer step did to a case's tensors, flattened in name order: float32 [n]."""

    update: np.ndarray
    m: np.ndarray
    v: np.ndarray
    grad_norm: float
    clip_factor: float


def run_chain(trainer: ReferenceTrainer, case: OptimizerCase) -> list[ChainStep]:
    """The trainer's clip and optimizer on the contract's gradients."""
    kind, kwargs = Trainer.get_optimizer_cls_and_kwargs(trainer.args)
    parameters = {name: torch.nn.Parameter(torch.from_numpy(value.copy())) for name, value in sorted(case.params.items())}
    optimizer = kind(list(parameters.values()), weight_decay=trainer.args.weight_decay, **kwargs)
    set_moments(optimizer, parameters, case.m, case.v, case.step)
    return [
        _chain_step(optimizer, parameters, gradients, trainer.args.max_grad_norm, rate)
        for gradients, rate in zip(case.grads, case.learning_rates, strict=True)
    ]


def _chain_step(optimizer, parameters: Parameters, gradients: Tensors, clip_norm: float, rate: float) -> ChainStep:
    for name, parameter in parameters.items():
        parameter.grad = torch.from_numpy(gradients[name].copy())
    before = _flat({name: to_numpy(value) for name, value in parameters.items()})
    norm, factor = apply_step(optimizer, parameters, clip_norm, rate)
    after, moments = _flat({name: to_numpy(value) for name, value in parameters.items()}), get_moments(optimizer, parameters)
    flat = {moment: _flat({name: moments[f"{name}.{moment}"] for name in parameters}) for moment in MOMENTS}
    return ChainStep(after - before, flat["m"], flat["v"], norm, factor)


def _flat(tensors: Tensors) -> np.ndarray:
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)])
