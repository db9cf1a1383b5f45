"""Rung weights: checkpoint -> stack -> Hugging Face layout, bit for bit."""

from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.digest import sha256_array


def recorded(bundle) -> dict[str, dict]:
    return {line["name"]: line for line in bundle.lines("weights", "tensors")}


def test_every_tensor_comes_back_bit_for_bit(judge, stacks, recipe, plan):
    """Every tensor of the checkpoint leaves the stack as it came in: name, shape, dtype and bits."""
    for bundle in stacks:
        lines = recorded(bundle)
        for name, value in _language_model(recipe, plan).items():
            line = lines.get(name, {})
            where = f"{bundle.stack}, {name}"
            judge.same(where, line.get("sha256"), sha256_array(value))


def test_the_tensors_are_the_same_set(judge, stacks, plan):
    """No tensor of the language model is missing and none is added."""
    for bundle in stacks:
        judge.same(f"{bundle.stack}, names", set(recorded(bundle)), set(plan.topology.tensors))
        shapes = {name: tuple(line["shape"]) for name, line in recorded(bundle).items()}
        for name, shape in plan.topology.tensors.items():
            judge.same(f"{bundle.stack}, shape of {name}", shapes.get(name), shape)


def test_what_is_left_out_is_named(judge, stacks, recipe, plan):
    """Tensors outside the language model are left out on purpose, each by name."""
    outside = set(read_tensors(recipe.checkpoint_dir)) - set(plan.topology.tensors)
    for bundle in stacks:
        judge.same(f"{bundle.stack}", {line["name"] for line in bundle.lines("weights", "left_out")}, outside)


def test_layer_i_holds_layer_i(judge, stacks, plan):
    """Control: no two layers have equal weights, so a layer in another's place cannot pass unseen."""
    for bundle in stacks:
        digests = {name: line["sha256"] for name, line in recorded(bundle).items() if name.endswith("_proj.weight")}
        judge.at_least(f"{bundle.stack}, distinct projection weights", len(set(digests.values())), len(digests))


def test_both_name_prefixes_load(judge, stacks):
    """A checkpoint under `model.language_model.` and one under `model.` load to the same tensors."""
    for bundle in stacks:
        digests = {line["prefix"]: line["sha256"] for line in bundle.lines("weights", "prefixes")}
        judge.same(f"{bundle.stack}, prefixes", set(digests), {"model.language_model.", "model."})
        judge.same(f"{bundle.stack}, tensors", digests.get("model."), digests.get("model.language_model."))


def test_a_wrong_checkpoint_is_refused_by_name(judge, stacks):
    """A missing, an extra and a wrongly shaped tensor are errors that name the tensor."""
    for bundle in stacks:
        lines = bundle.lines("weights", "refusals")
        judge.same(f"{bundle.stack}, cases", {line["case"] for line in lines}, {"missing", "extra", "shape"})
        for line in lines:
            named = line["refused"] and line["tensor"] in line["message"]
            judge.same(f"{bundle.stack}, {line['case']} {line['tensor']}: {line['message'][:80]}", named, True)


def _language_model(recipe, plan) -> dict:
    """The checkpoint's tensors of the language model by hub name, whatever prefix its files use."""
    prefix = "model.language_model."
    tensors = read_tensors(recipe.checkpoint_dir)
    plain = {name if name.startswith(prefix) else name.replace("model.", prefix, 1): value for name, value in tensors.items()}
    return {name: plain[name] for name in plan.topology.tensors if name in plain}
