"""Rung merge: base + adapter as a checkpoint, held to a float64 merge of the files that the bundle carries."""

import math
from dataclasses import dataclass

import numpy as np

from conformance.compare import ErrorShape, error_shape, real_logits, rms_error, wide
from conformance.contract.bundle import Bundle
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.digest import sha256_array
from conformance.merging import as_recorded, delta, read_adapter, unequal_share, worst_ulp

MEASURED_RANK = 12  # of the recipe that merge_exact_share was measured on: the rounding of a sum of r products grows with sqrt(r)
ADAPTERS = {"trained": "adapter", "loud": "adapter-loud"}
MERGED = {"trained": "merged", "loud": "merged-loud"}


def merged_weights(bundle: Bundle, key: str) -> dict[str, np.ndarray]:
    return bundle.arrays("merge", key + "/") | {}


def weights_of(plan, recipe) -> list[str]:
    return [weight.name for weight in plan.topology.adapted(recipe.adapter.targets)]


@dataclass(frozen=True, slots=True)
class Closeness:
    """Of all elements of a merge: the share not equal to the exact merge rounded once, and the largest error of each weight.

    The error is in ulp of max(|W|, |delta|, |W + delta|): where weight and delta cancel, a float32 sum cannot know more.
    """

    unequal: float
    ulps: dict[str, float]
    added: dict[str, np.ndarray]  # weight -> the delta that was added
    exact: dict[str, np.ndarray]  # weight -> the adapter's, float64

    @property
    def shape(self) -> ErrorShape:
        """Of what was added, all weights together."""
        return error_shape(*(np.concatenate([delta.ravel() for delta in deltas.values()]) for deltas in (self.added, self.exact)))

    def shape_of(self, weight: str) -> ErrorShape:
        return error_shape(self.added[weight], self.exact[weight])


def closeness(bundle: Bundle, key: str, kind: str, plan, recipe) -> Closeness:
    """Merge `key` of a bundle against the float64 merge with its `kind` adapter."""
    base, adapter = read_tensors(recipe.checkpoint_dir), read_adapter(bundle.folder(ADAPTERS[kind]))
    unequal, total, errors, added, exact = 0.0, 0, {}, {}, {}
    for name in weights_of(plan, recipe):
        merged = bundle.array("merge", f"{key}/{name}")
        weight = as_recorded(base[f"{name}.weight"], name, merged)
        change = as_recorded(delta(adapter, name, recipe.scale), name, merged)
        unequal += merged.size * unequal_share(merged, weight.astype(np.float64) + change)
        total += merged.size
        errors[name] = worst_ulp(merged, weight, change)
        added[name], exact[name] = wide(merged) - wide(weight), change
    return Closeness(unequal / total, errors, added, exact)


def test_the_ports_merge_is_the_rounded_exact_merge(judge, port, plan, recipe, limits):
    """The port's merge equals the float64 merge rounded once on 99.99 % of elements, and is within 1 ulp on the rest."""
    judge.measure_in("share of unequal elements; ulp")
    unequal = (1 - limits["merge_exact_share"].value) * max(1, math.sqrt(recipe.adapter.rank / MEASURED_RANK))
    for kind in ADAPTERS:
        found = closeness(port, kind, kind, plan, recipe)
        judge.within(f"{kind}, unequal elements", found.unequal, unequal, shape=found.shape)
        for name, ulps in found.ulps.items():
            judge.within(f"{kind}, {name}", ulps, 1.0, expected="at most 1 ulp", got=ulps, shape=found.shape_of(name))


def test_the_references_merge_is_within_an_ulp(judge, reference, plan, recipe, limits):
    """PEFT's merge is within 1 ulp of the largest of weight, delta and sum."""
    judge.measure_in("ulp of max(|W|, |delta|, |W + delta|)")
    for kind in ADAPTERS:
        found = closeness(reference, kind, kind, plan, recipe)
        for name, ulps in found.ulps.items():
            judge.within(f"{kind}, {name}", ulps, limits["peft_merge_ulp"].value, shape=found.shape_of(name))


def test_wrong_merges_are_told_apart(judge, port, plan, recipe, limits):
    """Control: the unmerged base, alpha x 1.01 and a transposed delta fail on the loud adapter."""
    for control in ("base", "alpha", "transposed"):
        found = closeness(port, f"control.{control}", "loud", plan, recipe)
        judge.above(f"{control}, unequal elements", found.unequal, 100 * (1 - limits["merge_exact_share"].value))


def test_untouched_tensors_are_bit_equal(judge, stacks, plan, recipe):
    """Every tensor without an adapter is the base's, bit for bit; every adapted one differs from it."""
    base = {name: sha256_array(value) for name, value in read_tensors(recipe.checkpoint_dir).items()}
    adapted = {f"{name}.weight" for name in weights_of(plan, recipe)}
    for bundle in stacks:
        for line in bundle.lines("merge", "tensors"):
            where = f"{bundle.stack}, {line['adapter']}, {line['name']}"
            judge.same(where + " touched", line["touched"], line["name"] in adapted)
            judge.same(where + " bits equal to the base", line["sha256"] == base.get(line["name"]), line["name"] not in adapted)


def test_the_merged_checkpoint_has_the_bases_form(judge, stacks, recipe):
    """Names, shapes and dtypes are the base's, and every shard says format pt."""
    base = read_tensors(recipe.checkpoint_dir)
    for bundle in stacks:
        for kind in ADAPTERS:
            lines = {x["name"]: x for x in bundle.lines("merge", "tensors") if x["adapter"] == kind}
            judge.same(f"{bundle.stack}, {kind}, names", set(lines), set(base))
            for name, line in lines.items():
                form = [line["dtype"], line["shape"], line["metadata_format"]]
                expected = [base[name].dtype.name, list(base[name].shape), "pt"]
                judge.same(f"{bundle.stack}, {kind}, {name}", form, expected)


def test_the_files_are_what_was_recorded(judge, stacks, recipe):
    """The merged folders hold the tensors whose digests were recorded."""
    for bundle in stacks:
        for kind, folder in MERGED.items():
            files = {name: sha256_array(value) for name, value in read_tensors(bundle.folder(folder)).items()}
            lines = {x["name"]: x["sha256"] for x in bundle.lines("merge", "tensors") if x["adapter"] == kind}
            judge.same(f"{bundle.stack}, {kind}", files == lines, True)


def test_merged_and_unmerged_models_agree(judge, stacks, plan, limits):
    """The merged model's logits are the adapted model's, up to the rounding of the merged weights."""
    judge.measure_in("share of the adapter's effect, or of what rounding costs the other stack", "full")
    off = {bundle.stack: {kind: rms_error(*_merged_and_apart(bundle, plan, kind)) for kind in ADAPTERS} for bundle in stacks}
    for bundle, other in zip(stacks, reversed(stacks), strict=True):
        base = real_logits(plan, bundle.array("logits", "f32/base/logits"))
        for kind in ADAPTERS:
            effect = rms_error(_merged_and_apart(bundle, plan, kind)[1], base)
            # The merged weights are rounded to the same dtype in both stacks: of a faint adapter that is more than a tenth.
            limit = max(0.1 * effect, limits["arithmetic"].value * off[other.stack][kind])
            judge.within(f"{bundle.stack}, {kind}", off[bundle.stack][kind], limit, expected=f"at most {limit:.3g}")


def _merged_and_apart(bundle: Bundle, plan, kind: str) -> list[np.ndarray]:
    return [real_logits(plan, bundle.array("merge", f"{kind}/{side}/logits")) for side in ("merged", "unmerged")]


def test_the_merged_model_differs_from_the_base(judge, stacks, plan):
    """Control: merging changed the logits, by a tenth of what the adapter changes at the least."""
    for bundle in stacks:
        base = real_logits(plan, bundle.array("logits", "f32/base/logits"))
        for kind in ADAPTERS:
            merged, apart = _merged_and_apart(bundle, plan, kind)
            judge.above(f"{bundle.stack}, {kind}", rms_error(merged, base), min(0.01, 0.1 * rms_error(apart, base)))


# Folder that is exchanged -> (the writer's own logits of it, the recorded state whose error is the floor).
EXCHANGED = {
    "adapter": ("trained/unmerged", "warm"),
    "adapter-loud": ("loud/unmerged", "loud"),
    "merged": ("trained/merged", "warm"),
    "merged-loud": ("loud/merged", "loud"),
}


def test_each_stack_reads_the_others_files(judge, reference, port, exchanged, plan, limits):
    """Adapters and merged checkpoints written by one stack give the same logits when the other loads them."""
    judge.measure_in("rms difference of the logits", "full")
    for reader, arrays, writer in ((reference, exchanged[0], port), (port, exchanged[1], reference)):
        for folder, (key, state) in EXCHANGED.items():
            truth = real_logits(plan, writer.array("merge", f"{key}/logits"))
            error = rms_error(real_logits(plan, arrays[f"{folder}/logits"]), truth)
            limit = limits["exchange"].value * floor(reference, plan, state)
            judge.within(f"{writer.stack}'s {folder} in {reader.stack}", error, limit, got=error)


def floor(reference: Bundle, plan, state: str) -> float:
    """The reference's own float32 rms error on the logits of a state."""
    single, exact = (real_logits(plan, reference.array("logits", f"{p}/{state}/logits")) for p in ("f32", "f64"))
    return rms_error(single, exact)
