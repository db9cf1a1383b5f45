"""Rung gradients: the gradient of one step's loss with respect to every adapter tensor, from the warm state."""

import re

import numpy as np

from conformance.compare import cosine, error_shape, relative_error, rms
from conformance.contract.bundle import Bundle
from conformance.floors import float32_floors, judge_scalar, judge_tensors, scalar_floors

# Variants that are the same mathematics in another order, by stack.
SAME = re.compile(r"accumulation=\d+|batch=1|remat=[a-z]+|checkpointing=(on|off)")


def norms(bundle: Bundle, precision: str = "f32") -> dict[str, dict]:
    lines = bundle.lines("gradients", "norms")
    return {line["variant"]: line for line in lines if line["precision"] == precision}


def gradients(bundle: Bundle, prefix: str) -> dict[str, np.ndarray]:
    return bundle.arrays("gradients", prefix + "/")


def test_every_gradient_is_as_exact_as_the_references(judge, reference, port, limits):
    """Every adapter tensor's gradient is as close to the float64 oracle as the reference's."""
    judge.measure_in("rms error, reference's x 1.5 or more where few elements count")
    mine, exact = gradients(port, "f32"), gradients(reference, "f64")
    judge_tensors(judge, reference, "gradients", mine, exact, limits)


def test_every_gradient_points_the_same_way(judge, reference, port):
    """Every adapter tensor's gradient has the direction of the reference's (1 - cosine below 1e-6)."""
    judge.measure_in("1 - cosine")
    mine, theirs = gradients(port, "f32"), gradients(reference, "f32")
    judge.same("tensors", set(mine), set(theirs))
    for name in [name for name in theirs if name in mine]:
        cos = cosine(mine[name], theirs[name])
        judge.within(name, 1 - cos, 1e-6, got=cos, shape=error_shape(mine[name], theirs[name]))


def test_loss_and_global_norm_are_as_exact_as_the_references(judge, reference, port, limits):
    """Loss and global gradient norm of the warm step are as close to the float64 oracle as the reference's."""
    judge.measure_in("relative difference", "full")
    exact = norms(reference, "f64")["warm"]
    for name, floor in scalar_floors(reference).items():
        found = {bundle.stack: norms(bundle)["warm"][name] for bundle in (reference, port)}
        judge_scalar(judge, name, found, exact[name], floor, limits)


def test_the_warm_norm_is_above_the_clip(judge, stacks, recipe):
    """The probe can see clipping: the warm gradient's norm is above the recipe's clip, where most steps of training are.

    A recipe whose clip is hardly ever reached has its clip shown by the optimizer's cases alone.
    """
    clip = recipe.optimizer.clip_norm or 0.0
    for bundle in stacks:
        trained = [line["grad_norm"] for line in bundle.lines("trajectory", "step") if line["run"] == "f32"]
        clipped = sum(norm > clip for norm in trained)
        if 2 * clipped >= len(trained):
            judge.above(f"{bundle.stack}, norm over clip", norms(bundle)["warm"]["grad_norm"], clip)
        else:
            judge.within(f"{bundle.stack}, clipped steps of training", clipped, len(trained) / 2)


def test_the_order_of_summation_does_not_matter(judge, stacks, reference, recipe, limits):
    """Accumulation N equals 1, a batch of 1 equals N, and rematerialisation changes nothing, in each stack."""
    judge.measure_in("relative difference", "full")
    least = 3 + sum(recipe.batch.effective % n == 0 for n in (1, 2, 4))  # batch of 1, checkpointing off and on, accumulations
    tensors = summation_limits(reference, limits)
    for bundle in stacks:
        variants = [name for name in norms(bundle) if SAME.fullmatch(name)]
        judge.at_least(f"{bundle.stack}, variants recorded", len(variants), least)
        for variant in variants:
            _same_gradient(judge, bundle, variant, tensors, limits["reference_self"].value)


def summation_limits(reference: Bundle, limits) -> dict[str, float]:
    """Tensor -> relative difference that two orders of summation may have: both are off by the reference's float32 error."""
    exact = gradients(reference, "f64")
    floors = float32_floors(reference, "gradients", exact)
    apart = 2 * limits["arithmetic"].value
    return {name: max(limits["reference_self"].value, apart * floors[name] / rms(truth)) for name, truth in exact.items()}


def _same_gradient(judge, bundle, variant, tensors: dict[str, float], scalar: float) -> None:
    base = norms(bundle)
    for name in ("loss", "grad_norm"):
        error = abs(base[variant][name] / base["warm"][name] - 1)
        where = f"{bundle.stack}, {variant}, {name}"
        judge.within(where, error, scalar, expected=base["warm"][name], got=base[variant][name])
    truth, mine = gradients(bundle, "f32"), gradients(bundle, f"f32.{variant}")
    judge.same(f"{bundle.stack}, {variant}, tensors", set(mine), set(truth))
    for name in [name for name in tensors if name in mine and name in truth]:
        error, shape = relative_error(mine[name], truth[name]), error_shape(mine[name], truth[name])
        judge.within(f"{bundle.stack}, {variant}, {name}", error, tensors[name], shape=shape)


def test_the_cold_step_moves_only_b(judge, stacks):
    """At the start, with B = 0, the gradient of every A is exactly 0 and that of every B is not."""
    for bundle in stacks:
        for name, value in gradients(bundle, "cold").items():
            moves = bool(np.any(value))
            judge.same(f"{bundle.stack}, {name} has a gradient", moves, name.endswith(".lora_B"))


def test_an_unmasked_prompt_changes_the_gradient(judge, stacks, recipe, limits):
    """Control: loss over the prompt as well gives another loss or another norm, unless that is the recipe's own loss.

    On an untrained model the loss over the prompt may be that over the answer (a drawn recipe: 40.87 and 40.90; norms 22 % apart).
    """
    for bundle in stacks:
        base = norms(bundle)
        if recipe.data.loss_scope == "all":
            judge.same(f"{bundle.stack}, loss over all", base["unmasked"]["loss"], base["warm"]["loss"])
            continue
        errors = [abs(base["unmasked"][name] / base["warm"][name] - 1) for name in ("loss", "grad_norm")]
        judge.above(bundle.stack, max(errors), 100 * limits["reference_self"].value)
