"""Rung sharding: one result on every mesh and in several processes, every tensor split by the contract's rule."""

import math
from functools import cache

import numpy as np

from conformance.compare import relative_error
from conformance.contract.bundle import Bundle
from conformance.contract.plan import EMPTY, Plan, make_plan
from conformance.contract.recipe import Recipe
from conformance.contract.sharding import MESHES, ONE, STEPS, Mesh, fallbacks, sharding_recipe, split_axes, stream_share
from conformance.trajectories import deviation, envelope_limit

MOVED = ("adapter", "m", "v")  # what the optimizer moves; the port's MultiSteps also holds an accumulator
ALONE = {"port": ONE.name, "reference": "ranks=1"}
TOGETHER = {"port": {mesh.name for mesh in MESHES} | {"processes=2"}, "reference": {"ranks=1", "ranks=2"}}
STREAMS = {"residual", "keys", "logits"}
LEAST_BYTES = 1 << 20  # a smaller leaf may lie whole on every device


@cache
def sharding_plan(recipe: Recipe) -> Plan:
    return make_plan(sharding_recipe(recipe))


def warm(bundle: Bundle) -> dict[str, dict]:
    return {line["mesh"]: line for line in bundle.lines("sharding", "warm")}


def tried(port: Bundle) -> list[Mesh]:
    """That all of them were is a check of its own."""
    return [mesh for mesh in MESHES if mesh.name in warm(port)]


def others(bundle: Bundle) -> list[str]:
    """Every mesh but the single device."""
    return sorted(set(warm(bundle)) - {ALONE[bundle.stack]})


def curve(bundle: Bundle, mesh: str, name: str) -> np.ndarray:
    """float64 [steps]"""
    lines = [line for line in bundle.lines("sharding", "step") if line["mesh"] == mesh]
    return np.asarray([line[name] for line in sorted(lines, key=lambda line: line["step"])], np.float64)


def test_every_mesh_was_tried(judge, stacks):
    """The port on seven meshes and in two processes, the reference in one process and in two."""
    for bundle in stacks:
        for mesh in sorted(TOGETHER[bundle.stack] - set(warm(bundle))):
            bundle.expect_whole("sharding", f"mesh {mesh}")
        judge.same(bundle.stack, set(warm(bundle)), TOGETHER[bundle.stack])


def test_every_mesh_takes_the_plans_rows(judge, stacks, recipe):
    """On every mesh each step takes the plan's rows, tokens and loss tokens, in equal shards and in order."""
    split_plan = sharding_plan(recipe)
    for bundle in stacks:
        for line in bundle.lines("sharding", "consumed"):
            where, step = f"{bundle.stack}, {line['mesh']}, step {line['step']}", split_plan.steps[line["step"]]
            planned = [split_plan.by_row[row] for row in step.rows]
            flat = [row for shard in line["shard_rows"] for row in shard]
            judge.same(f"{where}, rows", flat, [row for shard in step.micros[0] for row in shard])
            judge.same(f"{where}, shard sizes", len({len(shard) for shard in line["shard_rows"]}), 1)
            judge.same(f"{where}, tokens", line["tokens"], sum(len(row.ids) for row in planned))
            judge.same(f"{where}, loss tokens", line["loss_tokens"], sum(int(row.loss_mask.sum()) for row in planned))


def test_shards_hold_rows_of_unequal_length(judge, recipe):
    """Control: the shards of a step differ in loss tokens, so that a loss normalised per shard would show."""
    split_plan = sharding_plan(recipe)
    for step in split_plan.steps[:STEPS]:
        targets = {sum(int(split_plan.by_row[row].loss_mask.sum()) for row in shard if row != EMPTY) for shard in step.micros[0]}
        judge.at_least(f"step {step.index}, numbers of loss tokens", len(targets), 2)


def test_warm_gradients_do_not_depend_on_the_mesh(judge, stacks, limits):
    """From the warm state every adapter tensor has the single device's gradient, but for the order of summation."""
    judge.measure_in("relative error")
    for bundle in stacks:
        alone = bundle.arrays("sharding", ALONE[bundle.stack] + "/")
        for mesh in others(bundle):
            found = bundle.arrays("sharding", mesh + "/")
            judge.same(f"{bundle.stack}, {mesh}, tensors", set(found), set(alone))
            for name, value in alone.items():
                judge.within(f"{bundle.stack}, {mesh}, {name}", relative_error(found[name], value), limits["reference_self"].value)


def test_the_loss_and_the_clip_are_global(judge, stacks, limits):
    """Loss over all tokens of the step, norm over all shards, and the clip factor are the single device's."""
    judge.measure_in("relative difference")
    for bundle in stacks:
        lines = warm(bundle)
        alone = lines[ALONE[bundle.stack]]
        for mesh in others(bundle):
            for name in ("loss", "grad_norm", "factor"):
                error = abs(lines[mesh][name] / alone[name] - 1)
                where = f"{bundle.stack}, {mesh}, {name}"
                judge.within(where, error, limits["reference_self"].value, expected=alone[name], got=lines[mesh][name])


def test_every_run_stays_in_the_envelope(judge, reference, port, limits):
    """Twenty steps on every mesh, and in the reference's processes, stay within the envelope of the reference's single process."""
    judge.measure_in("relative deviation from the reference's single process")
    for name in ("loss", "grad_norm"):
        truth = curve(reference, ALONE["reference"], name)
        limit = envelope_limit(reference, name, limits)
        for bundle in (reference, port):
            for mesh in warm(bundle):
                mine = curve(bundle, mesh, name)
                judge.same(f"{bundle.stack}, {mesh}, steps", len(mine), len(truth))
                for step, error in enumerate(deviation(mine, truth)):
                    where = f"{bundle.stack}, {mesh}, {name}, step {step}"
                    judge.within(where, error, limit[step], expected=truth[step], got=mine[step])


def test_the_step_compiles_once(judge, port):
    """On every mesh one program takes every step."""
    for mesh, line in warm(port).items():
        judge.same(mesh, line["compiles"], 1)


def test_every_leaf_is_split_by_the_rule(judge, port, plan, recipe):
    """Weights, adapters, moments and accumulator on every mesh: the axes of the rule, and a device's share of that size."""
    meshes = {mesh.name: mesh for mesh in MESHES}
    for line in port.lines("sharding", "leaf"):
        mesh = meshes.get(line["mesh"])
        if mesh is None or line["group"] == "stream":
            continue
        where = f"{mesh.name}, {line['group']} {line['name']}"
        if line["group"] == "input":
            parts = [mesh.data * mesh.fsdp, *[1] * (len(line["shape"]) - 1)]
        else:
            axes = list(split_axes(line["name"], plan.topology, mesh))
            judge.same(f"{where}, axes", line["axes"], axes)
            parts = [mesh.size(axis) if axis else 1 for axis in axes]
        share = [size // part for size, part in zip(line["shape"], parts, strict=True)]
        judge.same(f"{where}, a device's share", line["device_shape"], share)


def test_activations_are_split_over_the_mesh(judge, port):
    """Where both axes split, no device holds more than its share of residual stream, keys and logits."""
    meshes, seen = {mesh.name: mesh for mesh in MESHES}, set()
    for line in (line for line in port.lines("sharding", "leaf") if line["group"] == "stream"):
        seen.add(line["name"].split(".")[0])
        share = stream_share(line["shape"], meshes[line["mesh"]])
        judge.same(f"{line['mesh']}, {line['name']}, a device's share", line["device_shape"], share)
    if not seen:
        port.expect_whole("sharding", "activations")
    judge.same("streams", seen, STREAMS)


def test_no_leaf_is_left_out(judge, port, plan, recipe):
    """Every weight, and of every adapter tensor value, moments and accumulator, is among the leaves of every mesh."""
    weights = plan.topology.adapted(recipe.adapter.targets)
    tensors = {f"{weight.name}.lora_{side}" for weight in weights for side in "AB"}
    for mesh in tried(port):
        found = [line for line in port.lines("sharding", "leaf") if line["mesh"] == mesh.name]
        names = {group: {line["name"] for line in found if line["group"] == group} for group in {line["group"] for line in found}}
        judge.same(f"{mesh.name}, weights", names.get("weight"), set(plan.topology.tensors))
        for group in (*MOVED, "accumulator"):
            judge.same(f"{mesh.name}, {group}", names.get(group), tensors)
        judge.at_least(f"{mesh.name}, inputs", len(names.get("input", ())), 2)


def test_the_references_parameters_are_shards(judge, reference, plan):
    """Under FSDP2 in two processes every parameter and moment lies in shards along its first dimension (DTensor)."""
    for line in reference.lines("sharding", "leaf"):
        if line["mesh"] != "ranks=2" or line["name"].endswith("layer_scalar"):  # a buffer: every process has it
            continue
        where = f"{line['group']} {line['name']}"
        judge.same(f"{where}, axes", line["axes"], ["fsdp", *[None] * (len(line["shape"]) - 1)])
        judge.same(f"{where}, a process's share", line["device_shape"], [-(-line["shape"][0] // 2), *line["shape"][1:]])


def test_what_an_axis_does_not_divide_is_named(judge, port, plan, recipe):
    """Dimensions that stay whole are those that the rule names; rows that cannot be split are refused."""
    for line in port.lines("sharding", "refusals"):
        judge.same(f"refused: {line['case']}", line["refused"], True)
    judge.at_least("refusals tried", len(port.lines("sharding", "refusals")), 1)
    weights = plan.topology.adapted(recipe.adapter.targets)
    adapters = tuple(f"{weight.name}.lora_{side}" for weight in weights for side in "AB")
    for mesh in tried(port):
        lines = [line for line in port.lines("sharding", "fallback") if line["mesh"] == mesh.name]
        found = {(line["name"], line["dim"], line["size"], line["axis"], line["parts"]) for line in lines}
        rule = fallbacks(plan.topology, mesh, (*plan.topology.tensors, *adapters))
        judge.same(mesh.name, found, {(one.tensor, one.dim, one.size, one.axis, one.parts) for one in rule})


def test_some_dimension_is_not_divided(judge, port):
    """Control: at least one mesh has an axis that does not divide a dimension, so that the fallback is seen."""
    judge.at_least("fallbacks", len(port.lines("sharding", "fallback")), 1)


def test_memory_at_full_size_is_near_ideal(judge, port):
    """At the 31B's shapes every leaf above 1 MB has at most 2 % more than its ideal share of a device, or a reason."""
    judge.measure_in("bytes per device over ideal")
    lines = port.lines("sharding", "abstract")
    judge.at_least("leaves", len(lines), 1000)
    for line in lines:
        if line["device_bytes"] > LEAST_BYTES and not line["reason"]:
            where = f"{line['mesh']}, {line['group']} {line['name']}"
            judge.within(where, line["device_bytes"] / line["ideal_bytes"] - 1, 0.02, got=line["device_bytes"])


def test_the_whole_state_fits_its_share(judge, port):
    """At the 31B's shapes a device holds at most 2 % more than its ideal share of the whole state where every axis divides."""
    judge.measure_in("bytes per device over ideal")
    for mesh in sorted({line["mesh"] for line in port.lines("sharding", "abstract")}):
        lines = [line for line in port.lines("sharding", "abstract") if line["mesh"] == mesh]
        explained = sum(line["device_bytes"] - line["ideal_bytes"] for line in lines if line["reason"])
        held, ideal = (sum(line[key] for line in lines) for key in ("device_bytes", "ideal_bytes"))
        judge.within(mesh, (held - explained) / ideal - 1, 0.02, got=f"{held / 1e9:.2f} GB, ideal {ideal / 1e9:.2f} GB")


def test_a_checkpoint_restores_on_another_mesh(judge, port):
    """Saved on 8 devices and restored on 4 and on 1, and with the axes split otherwise: equal bits, split as asked."""
    lines = port.lines("sharding", "restore")
    sizes = {math.prod(int(part.split("=")[1]) for part in line["restored"].split(",")) for line in lines}
    judge.same("devices restored on", {1, 4, 8} <= sizes, True)
    for line in lines:
        where = f"{line['saved']} to {line['restored']}"
        judge.same(f"{where}, {line['leaves']} leaves equal", line["equal"], True)
        judge.same(f"{where}, split as asked", line["as_asked"], True)


def test_a_lost_process_ends_the_other_and_the_run_resumes(judge, port):
    """When one of two processes is killed the other ends with a sentence, and a restart resumes bit for bit."""
    lines = port.lines("sharding", "lost")
    judge.at_least("processes lost", len(lines), 1)
    for line in lines:
        judge.same("ends", line["exit_code"] != 0 and bool(line["message"]), True)
        judge.at_least("resumed at step", line["resumed_step"], 1)
        judge.same("equal to the uninterrupted run", line["equal"], True)
