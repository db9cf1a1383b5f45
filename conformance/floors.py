"""The reference's own rounding as a floor for the port's: what *gradients* and *one_step* are judged by."""

import numpy as np

from conformance.compare import rms_error
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
    for name, truth in exact.items():
        error = rms_error(mine[name], truth)
        judge.within(name, error, factor * floors[name], expected=f"at most {factor} x {floors[name]:.3g}", got=error)
