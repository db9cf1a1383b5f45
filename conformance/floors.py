"""The reference's own rounding as a floor for the port's: what *gradients* and *one_step* are judged by."""

import math
from collections.abc import Mapping

import numpy as np
from scipy import stats

from conformance.compare import error_shape, rms_error
from conformance.contract.bundle import Bundle

FALSE_ALARM = 1e-6  # of one tensor; a recipe has some hundreds, the soak forty recipes


def float32_floors(reference: Bundle, rung: str, exact: dict[str, np.ndarray]) -> dict[str, float]:
    """Tensor -> the reference's largest rms float32 error against float64, over starts a few ulp apart."""
    floors = {name: rms_error(reference.array(rung, f"f32/{name}"), truth) for name, truth in exact.items()}
    for line in reference.lines(rung, "floor"):
        if line["tensor"] in floors:  # loss and global norm stand among them
            floors[line["tensor"]] = max(floors[line["tensor"]], line["rms_error"])
    return floors


def alike(variances: np.ndarray) -> float:
    """How many equally large errors scatter as much as errors of these variances do: few where one element is far above the others."""
    variances = np.asarray(variances, np.float64)
    return float(np.square(variances.sum()) / np.square(variances).sum()) if variances.any() else float(variances.size)


def chance_factor(elements: float, samples: int) -> float:
    """What chance alone may make of an rms error of so many elements, over the rms of `samples` others: the root of F's quantile.

    1.25 at 1,000 elements, 2.5 at 10: of a small tensor, or of one where an element with a tiny v has all of the error, five samples
    say little about a sixth.
    """
    return math.sqrt(stats.f.isf(FALSE_ALARM, elements, samples * elements))


def judge_tensors(
    judge, reference: Bundle, rung: str, mine: dict[str, np.ndarray], exact: dict[str, np.ndarray], limits,
    elements: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Every tensor of the port is as close to the float64 oracle as the reference's worst sample, times the arithmetic factor.

    `elements`: how many elements of a tensor count (`alike`); all, where it says nothing.
    """
    judge.same("tensors", set(mine), set(exact))
    floors, elements = float32_floors(reference, rung, exact), elements or {}
    samples = 1 + len({line["sample"] for line in reference.lines(rung, "floor")})
    for name in [name for name in exact if name in mine]:
        error, shape = rms_error(mine[name], exact[name]), error_shape(mine[name], exact[name])
        factor = max(limits["arithmetic"].value, chance_factor(elements.get(name, exact[name].size), samples))
        most = f"at most {factor:.2g} x {floors[name]:.3g}"
        judge.within(name, error, factor * floors[name], expected=most, got=error, shape=shape)


def scalar_floors(reference: Bundle) -> dict[str, float]:
    """Relative float32 error of the reference's loss and norm. A norm may be off by as much as its gradient (triangle inequality):
    the reference's own samples scatter around 0, another right arithmetic may err on one side (1.4e-5 seen in the soak, where every
    tensor was as exact as the reference's).
    """
    lines = {line["precision"]: line for line in reference.lines("gradients", "norms") if line["variant"] == "warm"}
    warm, exact, found = lines["f32"], lines["f64"], {}
    for name in ("loss", "grad_norm"):
        samples = [line["rms_error"] for line in reference.lines("gradients", "floor") if line["tensor"] == name]
        found[name] = max(abs(warm[name] - exact[name]), *samples) / exact[name]
    tensors = reference.arrays("gradients", "f64/")
    errors = [floor * math.sqrt(tensors[name].size) for name, floor in float32_floors(reference, "gradients", tensors).items()]
    return found | {"grad_norm": max(found["grad_norm"], math.hypot(*errors) / exact["grad_norm"])}


def judge_scalar(judge, name: str, found: dict[str, float], exact: float, floor: float, limits) -> None:
    """A loss or a global norm of each stack (`found`, by stack) is as close to the float64 oracle as the floor of it allows."""
    limit = max(limits["arithmetic"].value * floor, limits["loss_rounding"].value)
    for stack, got in found.items():
        judge.within(f"{stack}, {name}", abs(got / exact - 1), limit, expected=exact, got=got)
