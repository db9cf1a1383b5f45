"""Rung one_step: adapters and both moments after one optimizer step from the warm state."""

import re

import numpy as np

from conformance.adamw import clip_factor, global_norm, sensitivity
from conformance.compare import rms, rms_error, ulp
from conformance.contract.draws import warm_state
from conformance.floors import alike, float32_floors, judge_scalar, judge_tensors, scalar_floors


def recorded(bundle, precision: str) -> dict[str, np.ndarray]:
    return bundle.arrays("one_step", precision + "/")


def group(name: str) -> str:
    """A, B, and their moments: `lora_A`, `lora_B.v` and so on."""
    return re.search(r"lora_[AB](\.[mv])?$", name).group()


def test_every_tensor_is_as_exact_as_the_references(judge, reference, port, plan, recipe, limits):
    """After one warm step A, B and both moments are as close to the float64 oracle as the reference's."""
    judge.measure_in("rms error, reference's x 1.5 or more where few elements count")
    mine, exact = recorded(port, "f32"), recorded(reference, "f64")
    elements = {} if reference.large else _elements(reference, plan, recipe, exact)
    judge_tensors(judge, reference, "one_step", mine, exact, limits, elements)


def _elements(reference, plan, recipe, exact: dict[str, np.ndarray]) -> dict[str, float]:
    """Tensor -> how many of its elements count, at the least: an error of the gradient moves parameters with a tiny v most, and v where
    the gradient is large. The error itself may be of one size, or grow with the gradient.
    """
    grads, optimizer = reference.arrays("gradients", "f64/"), recipe.optimizer
    factor = clip_factor(global_norm(grads), optimizer.clip_norm)
    warm = warm_state(recipe, plan.topology.adapted(recipe.adapter.targets))
    rate, floors, found = plan.learning_rates[warm.step], float32_floors(reference, "gradients", grads), {}
    for name, grad in grads.items():
        m, v, g = exact[f"{name}.m"], exact[f"{name}.v"], factor * grad
        moved = rate * sensitivity(m, v, g, warm.step + 1, optimizer)
        for off in (factor * floors[name], factor * floors[name] * g / rms(g)):
            few = {
                name: alike(np.square(moved * off) + _rounding(exact[name])),
                f"{name}.m": alike(np.square((1 - optimizer.beta1) * off) + _rounding(m)),
                f"{name}.v": alike(np.square(2 * (1 - optimizer.beta2) * g * off) + _rounding(v)),
            }
            found |= {key: min(count, found.get(key, count)) for key, count in few.items()}
    return found


def _rounding(values: np.ndarray) -> np.ndarray:
    """Variance of one rounding to float32."""
    return np.square(ulp(values, np.dtype(np.float32))) / 12


def test_the_norm_before_clipping_is_as_exact_as_the_references(judge, reference, port, limits):
    """The global gradient norm that the clip meets is as close to the float64 oracle as the reference's.

    It is the norm of the rung gradients' warm step, and has its floor. Where both are above the clip, a factor in all
    gradients (accumulation summed instead of averaged) shows nowhere else.
    """
    judge.measure_in("relative difference", "full")
    norms = {b.stack: {line["precision"]: line["grad_norm"] for line in b.lines("one_step", "norms")} for b in (reference, port)}
    exact = norms[reference.stack]["f64"]
    found = {stack: by_precision["f32"] for stack, by_precision in norms.items()}
    judge_scalar(judge, "grad_norm", found, exact, scalar_floors(reference)["grad_norm"], limits)


def test_the_step_moved_everything(judge, stacks, plan, recipe):
    """Control: every tensor moved by far more than its error, so an unmoved one cannot pass."""
    state = warm_state(recipe, plan.topology.adapted(recipe.adapter.targets))
    start = dict(state.adapter)
    start |= {f"{name}.m": value for name, value in state.m.items()}
    start |= {f"{name}.v": value for name, value in state.v.items()}
    exact = recorded(stacks[0], "f64")
    for bundle in stacks:
        for name, value in recorded(bundle, "f32").items():
            moved = rms(value.astype(np.float64) - start[name])
            judge.above(f"{bundle.stack}, {name}", moved, 10 * rms_error(value, exact[name]))
