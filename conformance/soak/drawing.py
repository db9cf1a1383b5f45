"""Recipes drawn from a seed: untrained 6-layer models of other sizes and patterns, other rows, batches and optimizers."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np

from conformance.contract.checkpoint_files import SINGLE, write_file
from conformance.contract.draws import philox
from conformance.contract.recipe import (
    PROJECTIONS,
    Adapter,
    Batch,
    Data,
    Model,
    Optimizer,
    Recipe,
    Schedule,
    Seeds,
    Trajectory,
    load_recipe,
)
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.topology import read_topology
from conformance.saved import TINY

STEPS = 10
FULL, LOCAL = "full_attention", "sliding_attention"
PATTERNS = ("LLLLLF", "LLFLLF", "LFLFLF", "FLLLLF", "LLLFFF")  # Gemma 4's last layer is a full one
BATCHES = ((1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (3, 2), (1, 3))  # rows of a micro-batch, accumulation
REACH = 7  # standard deviations of a logit to the softcap: the largest of a probe's then comes close enough to show it
RUNS = Trajectory(perturbed_runs=8, bf16_runs=6, dropout_pairs=0)  # no statistical check: those are of 51 trained steps


class Draw:
    """Values of recipe number `index`, each from a generator of its own: a new one moves none of the others."""

    def __init__(self, seed: int, index: int):
        self._seed, self._index = seed, index

    def generator(self, name: str) -> np.random.Generator:
        return philox("soak", self._seed, f"recipe {self._index}: {name}")

    def one(self, name: str, values):
        return values[int(self.generator(name).integers(len(values)))]

    def between(self, name: str, low: float, high: float) -> float:
        """Log-uniform, to three digits."""
        return float(f"{math.exp(self.generator(name).uniform(math.log(low), math.log(high))):.3g}")


def draw_recipe(folder: Path, seed: int, index: int) -> Path:
    """FOLDER/<index>.toml with its checkpoint and rows beside it."""
    draw, name, tiny = Draw(seed, index), f"{index:02}", load_recipe(TINY)
    checkpoint, rows = folder / name, folder / f"{name}.jsonl"
    micro_batch, accumulation = draw.one("batch", BATCHES)
    write_model(checkpoint, draw, tiny.checkpoint_dir)
    write_rows(rows, draw, tiny.rows_file, STEPS * micro_batch * accumulation)
    rank = draw.one("rank", (1, 2, 4, 6, 8, 12, 16))
    targets = tuple(sorted(set(PROJECTIONS) - {draw.one("left out", (*PROJECTIONS, ""))}, key=PROJECTIONS.index))
    recipe = Recipe(
        Model(str(checkpoint)),
        Adapter(
            rank, float(rank * draw.one("alpha", (0.5, 1, 2, 4))), targets, rslora=draw.one("rslora", (False, False, True)),
        ),
        Data(
            str(rows), draw.one("limit", (116, 128, 1024)), strip_reasoning=draw.one("strip", (True, False)),
            loss_scope=draw.one("scope", ("assistant", "assistant", "all")), overlong=draw.one("overlong", ("drop", "truncate")),
            order=draw.one("order", ("shuffle", "file")),
        ),
        Batch(micro_batch, accumulation),
        Optimizer(
            draw.between("rate", 1e-4, 5e-3), beta1=draw.one("beta1", (0.8, 0.9, 0.95)), beta2=draw.one("beta2", (0.95, 0.99, 0.999)),
            eps=draw.one("eps", (1e-8, 1e-7, 1e-6)), weight_decay=draw.one("decay", (0.0, 0.001, 0.1)),
            clip_norm=draw.one("clip", (0.3, 1.0, 5.0, None)),
        ),
        Schedule(draw.one("warmup", (0, 1, 2, 3))),
        remat=tiny.remat,
        precision=tiny.precision,
        seeds=Seeds(*(int(one) for one in draw.generator("seeds").integers(1000, size=3))),
        trajectory=RUNS,
    )  # fmt: skip
    return write_recipe(folder / f"{name}.toml", dataclasses.replace(recipe, root=folder))


def write_rows(path: Path, draw: Draw, source: Path, count: int) -> None:
    lines = source.read_text().splitlines(keepends=True)
    chosen = sorted(draw.generator("rows").choice(len(lines), count, replace=False))
    path.write_text("".join(lines[row] for row in chosen))


def text_config(draw: Draw, tiny: dict) -> dict:
    """Sizes that differ from one another where they can, so that no swapped axis passes by luck."""
    heads = draw.one("heads", (4, 6, 8))
    divisors = [kv for kv in (1, 2, 3, 4) if heads % kv == 0]
    kinds = [FULL if letter == "F" else LOCAL for letter in draw.one("pattern", PATTERNS)]
    rope = json.loads(json.dumps(tiny["rope_parameters"]))
    rope[LOCAL]["rope_theta"] = draw.one("local theta", (1e3, 1e4, 1e5))
    rope[FULL] |= {"rope_theta": draw.one("full theta", (1e5, 1e6)), "partial_rotary_factor": draw.one("rotary", (0.25, 0.5))}
    return tiny | {
        "hidden_size": draw.one("hidden", (40, 56, 72, 96, 104)), "intermediate_size": draw.one("inner", (88, 120, 208, 288)),
        "num_hidden_layers": len(kinds), "layer_types": kinds, "num_attention_heads": heads,
        "num_key_value_heads": draw.one("kv heads", divisors), "num_global_key_value_heads": draw.one("global kv heads", divisors),
        "head_dim": draw.one("head", (16, 24, 32)), "global_head_dim": draw.one("global head", (32, 48, 80)),
        "sliding_window": draw.one("window", (8, 16, 32, 64)), "final_logit_softcapping": draw.one("softcap", (10.0, 30.0, 50.0)),
        "rope_parameters": rope,
    }  # fmt: skip


def write_model(folder: Path, draw: Draw, tiny: Path) -> None:
    """An untrained checkpoint in Hugging Face format, bfloat16, with the tiny one's tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in tiny.iterdir():
        if not path.name.startswith("model"):
            shutil.copyfile(path, folder / path.name)
    config = json.loads((tiny / "config.json").read_text())
    config["text_config"] = text_config(draw, config["text_config"])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generator = draw.generator("weights")
    topology = read_topology(folder)
    embedding = topology.softcap / (REACH * math.sqrt(topology.hidden))
    tensors = {name: _initial(name, shape, generator, embedding) for name, shape in topology.tensors.items()}
    write_file(folder / SINGLE, tensors, {"format": "pt"})


def _initial(name: str, shape: tuple[int, ...], generator: np.random.Generator, embedding: float) -> np.ndarray:
    """As fixtures/checkpoint.py: norms around 1, layer scalars below 1, projections of sd 1/sqrt(fan_in)."""
    if "layer_scalar" in name:
        return (generator.integers(190, 256, shape) / 256).astype(ml_dtypes.bfloat16)
    noise = generator.standard_normal(shape)
    value = 1 + 0.1 * noise if "norm" in name else noise * (embedding if "embed_tokens" in name else shape[-1] ** -0.5)
    return value.astype(ml_dtypes.bfloat16)
