"""The reference's own rounding as a floor for the port's: what *gradients* and *one_step* are judged by."""

import math

import numpy as np

from conformance.compare import error_shape, rms_error
from conformance.contract.bundle import Bundle


def float32_floors(reference: Bundle, rung: str, exact: dict[str, np.ndarray]) -> dict[str, float]:
    """Tensor -> the reference's largest rms float32 error against float64, over starts a few ulp apart."""
    floors = {name: rms_error(reference.array(rung, f"f32/{name}"), truth) for name, truth in exact.items()}
    for line in reference.lines(rung, "floor"):
        if line["tensor"] in floors:  # loss and global norm stand among them
            floors[line["tensor"]] = max(floors[line["tensor"]], line["rms_error"])
    return floors


def judge_tensors(judge, reference: Bundle, rung: str, mine: dict[str, np.ndarray], exact: dict[str, np.ndarray], limits) -> None:
    """Every tensor of the port is as close to the float64 oracle as the reference's worst sample, times the arithmetic factor."""
    judge.same("tensors", set(mine), set(exact))
    factor, floors = limits["arithmetic"].value, float32_floors(reference, rung, exact)
    for name in [name for name in exact if name in mine]:
        error, shape = rms_error(mine[name], exact[name]), error_shape(mine[name], exact[name])
        most = f"at most {factor} x {floors[name]:.3g}"
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
