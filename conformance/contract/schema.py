"""The schema of a bundle: every array and line that a stack may record, by rung. docs/bundle.md says what each means.

Dimensions are letters: P probes, T width, U width of the long probe, L layers, H hidden, V vocabulary, S sampled positions, G prompts,
K new tokens, R rows, N tokens, r/o/i an adapter tensor's sides. A letter has one value within a key; `*` is any number of dimensions.
"""

import re
from dataclasses import dataclass

RUNGS = (
    "tokens", "batches", "weights", "adapters", "logits", "gradients", "optimizer", "one_step", "trajectory",
    "sharding", "checkpoint", "merge", "generation", "serving", "evaluation",
)  # fmt: skip
VERSION = 1
WEIGHT = r"model\.language_model\.layers\.\d+\.(self_attn|mlp)\.[a-z]+_proj"
TENSOR = rf"{WEIGHT}\.lora_[AB]"
VARIANT = r"(accumulation=\d+|batch=1|remat=[a-z]+|checkpointing=(on|off)|unmasked)"

SERVED = r"(alone|together|control\.base|control\.adapter)"
MESH = r"(fsdp=\d+,tp=\d+|data=\d+|ranks=\d+|processes=\d+)"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """`key` is a regular expression; `dtype` None means the checkpoint's own; `dims` names each dimension.

    `large` is the kind in which a large model's array is kept (`kinds.py`): full, sketch, logits, states or block.
    """

    rung: str
    key: str
    dtype: str | None
    dims: str

    @property
    def large(self) -> str:
        if self.rung in ("gradients", "one_step", "trajectory", "sharding"):
            return "sketch"
        return {"PTV": "logits", "1UV": "logits", "PMSH": "states", "PLSH": "states"}.get(self.dims) or (
            "block" if self.rung == "merge" else "full"
        )


@dataclass(frozen=True, slots=True)
class LineSpec:
    """`fields` maps names to types: "int", "float", "str", "bool", "ints", "strs", "list" (of mixed items); `|none` allows null."""

    rung: str
    series: str
    fields: dict[str, str]


def _arrays(rung: str, *specs: tuple[str, str | None, str]) -> list[ArraySpec]:
    return [ArraySpec(rung, key, dtype, dims) for key, dtype, dims in specs]


ARRAYS: tuple[ArraySpec, ...] = (
    *_arrays(
        "tokens",
        ("rows", "int32", "R"), ("offsets", "int64", "Q"), ("ids", "int32", "N"), ("loss_mask", "uint8", "N"),
        (r"control\.unmasked/loss_mask", "uint8", "N"),
    ),
    *_arrays(
        "logits",
        (r"(f32|bf16)/(base|warm)/logits", "float32", "PTV"), (r"f64/(base|warm)/logits", "float64", "PTV"),
        (r"(f32|bf16)/(base|warm)/hidden", "float32", "PMSH"), (r"f64/(base|warm)/hidden", "float64", "PMSH"),
        (r"(f32|bf16)/(base|warm)/(attention|mlp)", "float32", "PLSH"),
        (r"f64/(base|warm)/(attention|mlp)", "float64", "PLSH"),
        (r"f32/warm\.left/logits", "float32", "PTV"), (r"(f32|bf16)/long/logits", "float32", "1UV"),
        (r"f64/long/logits", "float64", "1UV"),
        (r"f32/loud/logits", "float32", "PTV"), (r"f64/loud/logits", "float64", "PTV"),
        (r".*/logits\.elsewhere", "float32", "PTk"),
    ),
    *_arrays(
        "gradients",
        (rf"f32/{TENSOR}", "float32", "oi"), (rf"f64/{TENSOR}", "float64", "oi"), (rf"cold/{TENSOR}", "float32", "oi"),
        (rf"f32\.{VARIANT}/{TENSOR}", "float32", "oi"),
    ),
    *_arrays("optimizer", (r"[a-z_]+/\d+/(update|m|v)", "float32", "n")),
    *_arrays("one_step", (rf"f32/{TENSOR}(\.[mv])?", "float32", "oi"), (rf"f64/{TENSOR}(\.[mv])?", "float64", "oi")),
    *_arrays("trajectory", (rf"f32/(initial|final)/{TENSOR}", "float32", "oi")),
    *_arrays("sharding", (rf"{MESH}/{TENSOR}", "float32", "oi")),
    *_arrays(
        "merge",
        (rf"(trained|loud)/{WEIGHT}", None, "oi"), (rf"control\.(base|alpha|transposed)/{WEIGHT}", None, "oi"),
        (r"(trained|loud)/(merged|unmerged)/logits", "float32", "PTV"),
    ),
    *_arrays(
        "generation",
        (r"(f32|bf16)/ids", "int32", "GK"), (r"f32\.nocache/ids", "int32", "GK"),
        (r"(f32|bf16)/logprobs", "float32", "GK"), (r"f32/top2_gap", "float32", "GK"),
        (r"(f32|bf16)/forced_argmax", "int32", "GK"), (r"(f32|bf16)/forced_logprobs", "float32", "GK"),
    ),
    *_arrays(
        "serving",
        (rf"{SERVED}/ids", "int32", "GK"), (rf"{SERVED}/logprobs", "float32", "GK"),
        (rf"{SERVED}/probe_logprobs", "float32", "PT"), ("forced/argmax", "int32", "GK"), ("forced/logprobs", "float32", "GK"),
    ),
    *_arrays(
        "exchange",
        (r"(adapter|merged)(-loud)?/logits", "float32", "PTV"), (r"forced/(f32|bf16)/argmax", "int32", "GK"),
        (r"forced/(f32|bf16)/(gap|logprobs)", "float32", "GK"),
    ),
)  # fmt: skip

LINES: tuple[LineSpec, ...] = (
    LineSpec("tokens", "facts", {"template_sha256": "str", "bos_id": "int", "eos_ids": "ints", "pad_id": "int"}),
    LineSpec("batches", "consumed", {
        "step": "int", "micro": "int", "shard": "int", "rows": "ints", "tokens": "ints", "loss_tokens": "ints",
        "ids_sha256": "strs", "mask_sha256": "strs", "width": "int", "pad_side": "str", "attended": "ints"}),
    LineSpec("batches", "steps", {
        "step": "int", "rows": "int", "tokens": "int", "loss_tokens": "int", "learning_rate": "float"}),
    LineSpec("batches", "variants", {
        "accumulation": "int", "shards": "int", "step": "int", "rows": "ints", "tokens": "int", "loss_tokens": "int"}),
    LineSpec("batches", "padding", {"precision": "str", "side": "str", "width": "int", "loss": "float"}),
    LineSpec("weights", "tensors", {"name": "str", "dtype": "str", "shape": "ints", "sha256": "str"}),
    LineSpec("weights", "left_out", {"name": "str", "reason": "str"}),
    LineSpec("weights", "prefixes", {"prefix": "str", "sha256": "str"}),
    LineSpec("weights", "refusals", {"case": "str", "tensor": "str", "refused": "bool", "message": "str"}),
    LineSpec("adapters", "targets", {
        "weight": "str", "layer": "int", "layer_type": "str", "a_shape": "ints", "b_shape": "ints"}),
    LineSpec("adapters", "own_init", {
        "weight": "str", "seed": "int", "std": "float", "max_abs": "float", "fan_in": "int", "b_max_abs": "float",
        "sha256": "str"}),
    LineSpec("adapters", "scale", {
        "weight": "str", "alpha": "float", "r": "int", "rslora": "bool", "measured": "float"}),
    LineSpec("adapters", "facts", {
        "trainable_params": "int", "total_params": "int", "optimizer_leaves": "strs", "optimizer_leaves_remat": "strs"}),
    LineSpec("adapters", "frozen", {"name": "str", "sha256_before": "str", "sha256_after": "str"}),
    LineSpec("logits", "dtypes", {"precision": "str", "stream": "str", "dtype": "str"}),
    LineSpec("logits", "softcap", {"cap": "float|none", "max_abs_logit": "float", "pre_cap_max_abs": "float"}),
    LineSpec("gradients", "norms", {
        "variant": "str", "precision": "str", "loss": "float", "grad_norm": "float", "sha256": "str"}),
    *(LineSpec(rung, "floor", {"tensor": "str", "sample": "int", "rms_error": "float"}) for rung in ("gradients", "one_step")),
    LineSpec("one_step", "norms", {"precision": "str", "grad_norm": "float"}),
    LineSpec("optimizer", "clip", {"case": "str", "step": "int", "grad_norm": "float", "factor": "float"}),
    LineSpec("trajectory", "run", {"run": "str", "precision": "str", "seed": "int", "dropout": "float"}),
    LineSpec("trajectory", "step", {
        "run": "str", "step": "int", "loss": "float", "grad_norm": "float", "learning_rate": "float", "tokens": "int",
        "loss_tokens": "int"}),
    LineSpec("trajectory", "logged", {  # of a logger, as it counts and rounds; imported bundles only, no check takes it
        "logged_step": "int", "loss": "float", "grad_norm": "float", "learning_rate": "float"}),
    LineSpec("sharding", "warm", {
        "mesh": "str", "devices": "int", "processes": "int", "loss": "float", "grad_norm": "float", "factor": "float",
        "compiles": "int"}),
    LineSpec("sharding", "consumed", {
        "mesh": "str", "step": "int", "shard_rows": "list", "tokens": "int", "loss_tokens": "int"}),
    LineSpec("sharding", "step", {
        "mesh": "str", "step": "int", "loss": "float", "grad_norm": "float", "learning_rate": "float"}),
    LineSpec("sharding", "leaf", {
        "mesh": "str", "group": "str", "name": "str", "shape": "list", "axes": "list", "device_shape": "list"}),
    LineSpec("sharding", "fallback", {
        "mesh": "str", "name": "str", "dim": "int", "size": "int", "axis": "str", "parts": "int"}),
    LineSpec("sharding", "refusals", {"case": "str", "refused": "bool", "message": "str"}),
    LineSpec("sharding", "abstract", {
        "mesh": "str", "group": "str", "name": "str", "bytes": "int", "device_bytes": "int", "ideal_bytes": "int", "reason": "str"}),
    LineSpec("sharding", "restore", {
        "saved": "str", "restored": "str", "leaves": "int", "equal": "bool", "as_asked": "bool"}),
    LineSpec("sharding", "lost", {
        "processes": "int", "exit_code": "int", "message": "str", "resumed_step": "int", "equal": "bool"}),
    LineSpec("checkpoint", "resume", {
        "dropout": "float", "save": "str", "split": "int", "equal_loss": "bool", "equal_adapters": "bool", "equal_moments": "bool",
        "equal_position": "bool", "saved_step": "int|none", "steps": "int"}),
    LineSpec("checkpoint", "kill", {
        "attempt": "int", "delay_ms": "float", "save_ms": "float", "partial": "bool", "restored_step": "int", "equal": "bool"}),
    LineSpec("merge", "tensors", {
        "adapter": "str", "name": "str", "dtype": "str", "shape": "ints", "sha256": "str", "touched": "bool",
        "metadata_format": "str"}),
    LineSpec("generation", "stops", {"precision": "str", "prompt": "int", "reason": "str", "new_tokens": "int"}),
    LineSpec("serving", "server", {"serves": "str", "setting": "str", "value": "str"}),
    LineSpec("serving", "weights", {"serves": "str", "file": "str", "sha256": "str"}),
    LineSpec("serving", "reply", {
        "of": "str", "prompt": "int", "sent_tokens": "int", "prompt_tokens": "int", "same_prompt_ids": "bool",
        "completion_tokens": "int", "finish_reason": "str"}),
    LineSpec("serving", "chat", {"path": "str", "prompt": "int", "ids": "ints"}),
)  # fmt: skip

# Fields of few words.
CHOICES: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("batches", "consumed", "pad_side"): ("left", "right", "none"),
    ("batches", "padding", "side"): ("left", "right", "none"),
    ("batches", "padding", "precision"): ("f32", "bf16"),
    ("weights", "refusals", "case"): ("missing", "extra", "shape"),
    ("logits", "dtypes", "precision"): ("f32", "bf16"),
    ("gradients", "norms", "precision"): ("f32", "f64"),
    ("one_step", "norms", "precision"): ("f32", "f64"),
    ("checkpoint", "resume", "save"): ("interval", "last"),
    ("merge", "tensors", "adapter"): ("trained", "loud"),
    ("generation", "stops", "precision"): ("f32", "bf16"),
    ("generation", "stops", "reason"): ("eos", "length"),
    ("serving", "server", "serves"): ("merged", "controls"),
    ("serving", "weights", "serves"): ("merged", "controls"),
    ("serving", "reply", "of"): ("alone", "together", "control.base", "control.adapter"),
    ("serving", "chat", "path"): ("chat", "tokenize"),
}


def array_spec(rung: str, key: str) -> ArraySpec | None:
    return next((spec for spec in ARRAYS if spec.rung == rung and re.fullmatch(spec.key, key)), None)


def line_spec(rung: str, series: str) -> LineSpec | None:
    return next((spec for spec in LINES if (spec.rung, spec.series) == (rung, series)), None)
