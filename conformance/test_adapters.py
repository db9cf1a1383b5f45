"""Rung adapters: what is adapted, how it starts, how strongly it acts, and that nothing else moves."""

import math
from collections import Counter

from conformance.contract.topology import Weight


def targets(bundle) -> dict[str, dict]:
    return {line["weight"]: line for line in bundle.lines("adapters", "targets")}


def adapted(plan, recipe) -> tuple[Weight, ...]:
    return plan.topology.adapted(recipe.adapter.targets)


def adapter_shapes(plan, recipe) -> dict[str, list[int]]:
    """Adapter tensor -> shape in PEFT's layout."""
    rank = recipe.adapter.rank
    a = {f"{w.name}.lora_A": [rank, w.in_features] for w in adapted(plan, recipe)}
    return a | {f"{w.name}.lora_B": [w.out_features, rank] for w in adapted(plan, recipe)}


def facts(bundle) -> dict:
    return bundle.lines("adapters", "facts")[0]


def test_the_adapted_weights_are_the_recipes(judge, stacks, plan, recipe):
    """Exactly the recipe's weights are adapted, in every layer, by their Hugging Face names."""
    for bundle in stacks:
        judge.same(bundle.stack, set(targets(bundle)), {weight.name for weight in adapted(plan, recipe)})


def test_every_layer_type_has_its_set(judge, stacks, plan, recipe):
    """Per layer type the same projections are adapted: no v_proj where K serves as V, and K there is."""
    expected = Counter((weight.layer_type, weight.name.split(".")[-1]) for weight in adapted(plan, recipe))
    for bundle in stacks:
        found = Counter((line["layer_type"], name.split(".")[-1]) for name, line in targets(bundle).items())
        for key in expected | found:
            judge.same(f"{bundle.stack}, {' '.join(key)}", found[key], expected[key])


def test_adapter_shapes_are_pefts(judge, stacks, plan, recipe):
    """Every weight has its own A (r, in) and B (out, r): none is shared or fused."""
    shapes = adapter_shapes(plan, recipe)
    for bundle in stacks:
        for name, line in targets(bundle).items():
            judge.same(f"{bundle.stack}, {name}.lora_A", line["a_shape"], shapes.get(f"{name}.lora_A"))
            judge.same(f"{bundle.stack}, {name}.lora_B", line["b_shape"], shapes.get(f"{name}.lora_B"))


def test_trainable_parameters_are_counted_equal(judge, stacks, plan, recipe):
    """Both stacks train the same number of parameters."""
    expected = sum(math.prod(shape) for shape in adapter_shapes(plan, recipe).values())
    for bundle in stacks:
        judge.same(bundle.stack, facts(bundle)["trainable_params"], expected)


def test_only_adapters_have_moments(judge, stacks, plan, recipe):
    """The optimizer holds the adapter tensors and nothing else, with rematerialisation on and off."""
    for bundle in stacks:
        for name in ("optimizer_leaves", "optimizer_leaves_remat"):
            judge.same(f"{bundle.stack}, {name}", set(facts(bundle)[name]), set(adapter_shapes(plan, recipe)))


def test_a_starts_with_the_recipes_spread(judge, stacks, recipe, limits):
    """Each stack's own initialiser draws A as wide as the recipe asks, and B as zero."""
    judge.measure_in("relative difference of A's standard deviation", "sampled")
    for bundle in stacks:
        for line in bundle.lines("adapters", "own_init"):
            bound = 1 / math.sqrt(line["fan_in"])  # kaiming_uniform(a = sqrt 5): PEFT
            where = f"{bundle.stack}, {line['weight']}, seed {line['seed']}"
            std = bound / math.sqrt(3)
            limit = limits["init_spread"].value * standard_error(recipe.adapter.rank * line["fan_in"])
            judge.within(where, abs(line["std"] / std - 1), limit, expected=std, got=line["std"])
            # A uniform draw reaches its bound: a sharp limit, of which no share is left over.
            largest = f"{where}, largest ({line['max_abs']:.6g}) within the bound ({bound:.6g})"
            judge.same(largest, line["max_abs"] <= bound * (1 + 1e-6), True)
            judge.same(where + ", B", line["b_max_abs"], 0.0)


def standard_error(elements: int) -> float:
    """Relative standard error of the standard deviation of so many uniform values, whose kurtosis is 9/5."""
    return math.sqrt((9 / 5 - 1) / (4 * elements))


def test_the_seed_matters(judge, stacks):
    """Two seeds give two different A's, and no two weights share one."""
    for bundle in stacks:
        lines = bundle.lines("adapters", "own_init")
        judge.same(f"{bundle.stack}, seeds", len({line["seed"] for line in lines}), 2)
        judge.same(f"{bundle.stack}, distinct A", len({line["sha256"] for line in lines}), len(lines))


def test_the_scale_is_the_recipes(judge, stacks, limits):
    """B·A acts with the factor alpha / r, with rsLoRA alpha / sqrt(r)."""
    judge.measure_in("relative difference of the factor", "sampled")
    for bundle in stacks:
        lines = bundle.lines("adapters", "scale")
        judge.same(f"{bundle.stack}, rsLoRA measured", {line["rslora"] for line in lines}, {False, True})
        for line in lines:
            scale = line["alpha"] / (math.sqrt(line["r"]) if line["rslora"] else line["r"])
            error = abs(line["measured"] / scale - 1)
            where = f"{bundle.stack}, {line['weight']}, alpha {line['alpha']:g} rsLoRA {line['rslora']}"
            judge.within(where, error, limits["scale"].value, expected=scale, got=line["measured"])


def test_a_wrong_alpha_is_told_apart(judge, stacks, recipe, limits):
    """Control: alpha x 1.01 gives another factor, far outside the limit."""
    for bundle in stacks:
        off = [line for line in bundle.lines("adapters", "scale") if line["alpha"] != recipe.adapter.alpha]
        judge.at_least(f"{bundle.stack}, controls", len(off), 1)
        for line in off:
            error = abs(line["measured"] / (recipe.adapter.alpha / line["r"]) - 1)
            judge.above(f"{bundle.stack}, {line['weight']}", error, 10 * limits["scale"].value)


def test_frozen_weights_do_not_move(judge, stacks, plan):
    """After training every base weight is bit-equal to what it was."""
    for bundle in stacks:
        lines = {line["name"]: line for line in bundle.lines("adapters", "frozen")}
        judge.same(f"{bundle.stack}, tensors", set(lines), set(plan.topology.tensors))
        for name, line in lines.items():
            judge.same(f"{bundle.stack}, {name}", line["sha256_after"], line["sha256_before"])
