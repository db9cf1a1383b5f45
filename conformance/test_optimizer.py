"""Rung optimizer: both chains are fed the contract's gradients and held to a float64 formula, in ulp."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.adamw import Applied, apply, flat, unflat
from conformance.compare import error_shape, ulp, wide
from conformance.contract.bundle import Bundle
from conformance.contract.optimizer_cases import optimizer_cases
from conformance.contract.recipe import Recipe

FLOAT32 = np.dtype(np.float32)


def ulps(got: np.ndarray, truth: np.ndarray, at: np.ndarray) -> float:
    """Largest error in float32 ulp at the magnitude `at`."""
    return float(np.max(np.abs(wide(got) - truth) / ulp(at, FLOAT32)))


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step: where it stands, the float64 formula's result, and the flat parameters before it."""

    case: str
    index: int
    exact: Applied
    before: np.ndarray


def steps(bundle: Bundle, recipe: Recipe) -> Iterator[Step]:
    """Every step of every case by the formula, from the state and with the clip factor that the stack itself recorded.

    Errors of earlier steps are not carried along: where a moment cancels, they would be many ulp of what is left; this step's
    own rounding is counted in ulp of the terms that cancel. The factor has a check of its own: the order of its sum is the
    stack's, and the square in v would double its error.
    """
    factors = {(line["case"], line["step"]): line["factor"] for line in bundle.lines("optimizer", "clip")}
    for case in optimizer_cases(recipe.optimizer.clip_norm):
        params, m, v = case.params, case.m, case.v
        for index, (grads, rate) in enumerate(zip(case.grads, case.learning_rates, strict=True)):
            number, factor = case.step + index + 1, factors[(case.name, index)]
            exact = apply(grads, params, m, v, number, float(np.float32(rate)), recipe.optimizer, factor)
            yield Step(case.name, index, exact, flat(params))
            update, m, v = (unflat(bundle.array("optimizer", f"{case.name}/{index}/{k}"), params) for k in ("update", "m", "v"))
            params = {name: value + update[name] for name, value in params.items()}


def test_first_moments_follow_the_formula(judge, stacks, recipe, limits):
    """The first moment is beta1 m + (1 - beta1) g of the clipped gradient, to float32's rounding."""
    judge.measure_in("float32 ulp")
    for bundle in stacks:
        for step in steps(bundle, recipe):
            got = bundle.array("optimizer", f"{step.case}/{step.index}/m")
            error = ulps(got, flat(step.exact.m), flat(step.exact.m_terms))
            shape = error_shape(got, flat(step.exact.m))
            judge.within(f"{bundle.stack}, {step.case}, step {step.index}", error, limits["optimizer_ulp"].value, shape=shape)


def test_second_moments_follow_the_formula(judge, stacks, recipe, limits):
    """The second moment is beta2 v + (1 - beta2) g squared of the clipped gradient, to float32's rounding."""
    judge.measure_in("float32 ulp")
    for bundle in stacks:
        for step in steps(bundle, recipe):
            got = bundle.array("optimizer", f"{step.case}/{step.index}/v")
            error = ulps(got, flat(step.exact.v), flat(step.exact.v))
            shape = error_shape(got, flat(step.exact.v))
            judge.within(f"{bundle.stack}, {step.case}, step {step.index}", error, limits["optimizer_ulp"].value, shape=shape)


def test_updates_follow_the_formula(judge, stacks, recipe, limits):
    """The update is the learning rate times bias-corrected Adam with decoupled weight decay, eps outside the root."""
    judge.measure_in("float32 ulp of the parameter or of the update's larger term")
    for bundle in stacks:
        for step in steps(bundle, recipe):
            got, truth = bundle.array("optimizer", f"{step.case}/{step.index}/update"), flat(step.exact.update)
            error = ulps(got, truth, np.maximum(np.abs(step.before), flat(step.exact.update_terms)))
            shape = error_shape(got, truth)
            judge.within(f"{bundle.stack}, {step.case}, step {step.index}", error, limits["optimizer_ulp"].value, shape=shape)


def test_the_clip_factor_follows_the_formula(judge, stacks, recipe, limits):
    """Gradients are scaled by clip / (norm + 1e-6), at most 1, over the global norm."""
    judge.measure_in("relative difference")
    for bundle in stacks:
        lines = {(line["case"], line["step"]): line for line in bundle.lines("optimizer", "clip")}
        for step in steps(bundle, recipe):
            line = lines[(step.case, step.index)]
            for name, truth in (("grad_norm", step.exact.norm), ("factor", step.exact.factor)):
                where = f"{bundle.stack}, {step.case}, step {step.index}, {name}"
                error = abs(line[name] / truth - 1)
                judge.within(where, error, limits["clip_factor"].value, expected=truth, got=line[name])


def test_the_cases_lie_on_both_sides_of_the_clip(judge, reference, recipe):
    """Control: some of the contract's gradients are clipped and some are not, so that clipping shows."""
    factors = {step.exact.factor < 1 for step in steps(reference, recipe)}
    judge.same("clipped", factors, {True, False} if recipe.optimizer.clip_norm else {False})


def test_wrong_constants_are_told_apart(judge, reference, recipe, limits):
    """Control: eps x 10, either beta, weight decay 0.01 and half the clip are far over the limit."""
    wrong = {
        "eps": recipe.optimizer.eps * 10,
        "beta1": 1 - (1 - recipe.optimizer.beta1) / 2,
        "beta2": 1 - (1 - recipe.optimizer.beta2) / 2,
        "weight_decay": recipe.optimizer.weight_decay + 0.01,
        "clip_norm": (recipe.optimizer.clip_norm or 1.0) / 2,
    }
    for name, value in wrong.items():
        optimizer = dataclasses.replace(recipe.optimizer, **{name: value})
        judge.above(f"{name} = {value}", _worst_error(reference, recipe, optimizer), 10 * limits["optimizer_ulp"].value)


def _worst_error(bundle, recipe, optimizer) -> float:
    """Largest error of the recorded updates against the formula with other constants, as the check measures it."""
    worst = 0.0
    for case in optimizer_cases(recipe.optimizer.clip_norm):
        rate = float(np.float32(case.learning_rates[0]))
        applied = apply(case.grads[0], case.params, case.m, case.v, case.step + 1, rate, optimizer)
        got = bundle.array("optimizer", f"{case.name}/0/update")
        worst = max(worst, ulps(got, flat(applied.update), np.maximum(np.abs(flat(case.params)), flat(applied.update_terms))))
    return worst
