"""Rung optimizer: both chains are fed the contract's gradients and held to a float64 formula, in ulp."""

import dataclasses

import numpy as np

from conformance.adamw import apply, flat, run_case
from conformance.compare import ulp, wide
from conformance.contract.optimizer_cases import optimizer_cases

FLOAT32 = np.dtype(np.float32)


def ulps(got: np.ndarray, truth: np.ndarray, at: np.ndarray) -> float:
    """Largest error in float32 ulp at the magnitude `at`."""
    return float(np.max(np.abs(wide(got) - truth) / ulp(at, FLOAT32)))


def steps(recipe):
    """(case, step index, float64 result, flat parameters before) of every step of every case."""
    for case in optimizer_cases():
        before = case.params
        for index, applied in enumerate(run_case(case, recipe.optimizer)):
            yield case, index, applied, flat(before)
            before = applied.params


def test_first_moments_follow_the_formula(judge, stacks, recipe, limits):
    """The first moment is beta1 m + (1 - beta1) g of the clipped gradient, to float32's rounding."""
    judge.measure_in("float32 ulp")
    for bundle in stacks:
        for case, index, applied, _ in steps(recipe):
            got = bundle.array("optimizer", f"{case.name}/{index}/m")
            error = ulps(got, flat(applied.m), flat(applied.m_terms))
            judge.within(f"{bundle.stack}, {case.name}, step {index}", error, limits["optimizer_ulp"].value)


def test_second_moments_follow_the_formula(judge, stacks, recipe, limits):
    """The second moment is beta2 v + (1 - beta2) g squared of the clipped gradient, to float32's rounding."""
    judge.measure_in("float32 ulp")
    for bundle in stacks:
        for case, index, applied, _ in steps(recipe):
            got = bundle.array("optimizer", f"{case.name}/{index}/v")
            error = ulps(got, flat(applied.v), flat(applied.v))
            judge.within(f"{bundle.stack}, {case.name}, step {index}", error, limits["optimizer_ulp"].value)


def test_updates_follow_the_formula(judge, stacks, recipe, limits):
    """The update is the learning rate times bias-corrected Adam with decoupled weight decay, eps outside the root."""
    judge.measure_in("float32 ulp of the parameter")
    for bundle in stacks:
        for case, index, applied, before in steps(recipe):
            got, truth = bundle.array("optimizer", f"{case.name}/{index}/update"), flat(applied.update)
            error = ulps(got, truth, np.maximum(np.abs(before), np.abs(truth)))
            judge.within(f"{bundle.stack}, {case.name}, step {index}", error, limits["optimizer_ulp"].value)


def test_the_clip_factor_follows_the_formula(judge, stacks, recipe, limits):
    """Gradients are scaled by clip / (norm + 1e-6), at most 1, over the global norm."""
    judge.measure_in("relative difference")
    for bundle in stacks:
        lines = {(line["case"], line["step"]): line for line in bundle.lines("optimizer", "clip")}
        for case, index, applied, _ in steps(recipe):
            line = lines[(case.name, index)]
            for name, truth in (("grad_norm", applied.norm), ("factor", applied.factor)):
                where = f"{bundle.stack}, {case.name}, step {index}, {name}"
                error = abs(line[name] / truth - 1)
                judge.within(where, error, limits["clip_factor"].value, expected=truth, got=line[name])


def test_the_cases_lie_on_both_sides_of_the_clip(judge, recipe):
    """The probe can see clipping: some gradients are clipped and some are not."""
    factors = {applied.factor < 1 for _, _, applied, _ in steps(recipe)}
    judge.same("clipped", factors, {True, False} if recipe.optimizer.clip_norm else {False})


def test_wrong_constants_are_told_apart(judge, reference, recipe, limits):
    """Control: eps x 10, either beta, weight decay 0.01 and a missing clip are far over the limit."""
    wrong = {
        "eps": recipe.optimizer.eps * 10,
        "beta1": 0.95,
        "beta2": 0.9995,
        "weight_decay": recipe.optimizer.weight_decay + 0.01,
        "clip_norm": None,
    }
    for name, value in wrong.items():
        optimizer = dataclasses.replace(recipe.optimizer, **{name: value})
        judge.above(f"{name} = {value}", _worst_error(reference, optimizer), 10 * limits["optimizer_ulp"].value)


def _worst_error(bundle, optimizer) -> float:
    """Largest error of the recorded updates against the formula with other constants, in ulp of the parameter."""
    worst = 0.0
    for case in optimizer_cases():
        rate = float(np.float32(case.learning_rates[0]))
        applied = apply(case.grads[0], case.params, case.m, case.v, case.step + 1, rate, optimizer)
        got = bundle.array("optimizer", f"{case.name}/0/update")
        worst = max(worst, ulps(got, flat(applied.update), flat(case.params)))
    return worst
