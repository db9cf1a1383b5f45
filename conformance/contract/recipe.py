"""A recipe: everything that decides what a fine-tuning run computes, read from TOML into frozen dataclasses.

An unknown key, a wrong type or an impossible combination is a `ContractError` that names key, value and what is allowed.
"""

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from conformance.contract.digest import sha256_json
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Model:
    checkpoint: str  # folder in Hugging Face format, relative to the recipe file
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    attention: Literal["eager", "sdpa", "flash"] = "eager"


@dataclass(frozen=True, slots=True)
class Adapter:
    rank: int
    alpha: float
    targets: tuple[str, ...] = PROJECTIONS
    rslora: bool = False
    dropout: float = 0.0
    init: Literal["kaiming_uniform", "he_uniform"] = "kaiming_uniform"  # PEFT's; Qwix's default
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, slots=True)
class Data:
    rows: str  # JSON Lines file or datasets folder, relative to the recipe file
    max_tokens: int
    strip_reasoning: bool = True
    template: Literal["checkpoint", "gemma3"] = "checkpoint"
    loss_scope: Literal["assistant", "all"] = "assistant"
    overlong: Literal["drop", "truncate", "error"] = "drop"
    order: Literal["file", "shuffle"] = "shuffle"
    epochs: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one optimizer step: micro_batch (rows per device and micro-batch) x accumulation x shards."""

    micro_batch: int
    accumulation: int
    shards: int = 1

    @property
    def effective(self) -> int:
        return self.micro_batch * self.accumulation * self.shards


@dataclass(frozen=True, slots=True)
class Optimizer:
    learning_rate: float
    name: Literal["adamw"] = "adamw"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float | None = 1.0  # "none" in TOML: no clipping


@dataclass(frozen=True, slots=True)
class Schedule:
    warmup_steps: int
    name: Literal["cosine"] = "cosine"


@dataclass(frozen=True, slots=True)
class Precision:
    compute: Literal["float32", "bfloat16"] = "bfloat16"
    matmul: Literal["highest", "default"] = "highest"


@dataclass(frozen=True, slots=True)
class Remat:
    policy: Literal["none", "block", "decoder", "ours"] = "decoder"


@dataclass(frozen=True, slots=True)
class Seeds:
    data: int = 42
    adapter: int = 0
    dropout: int = 0


@dataclass(frozen=True, slots=True)
class Sharding:
    fsdp: int = 1
    tp: int = 1


@dataclass(frozen=True, slots=True)
class Trajectory:
    """How many runs the statistical and noise-floor checks take (DESIGN.md, Tolerances 3 and Statistics)."""

    perturbed_runs: int = 8
    bf16_runs: int = 6
    dropout_pairs: int = 5


@dataclass(frozen=True, slots=True)
class Generation:
    """Rows whose questions are the 16 generation prompts; none: the contract spreads them over short and long answers.

    They are rows of `rows`, a file like data.rows; without one, kept rows of data.rows itself.
    """

    prompt_rows: tuple[int, ...] = ()
    rows: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """One fine-tuning recipe. `root` is the folder that its relative paths start from."""

    model: Model
    adapter: Adapter
    data: Data
    batch: Batch
    optimizer: Optimizer
    schedule: Schedule
    precision: Precision = field(default_factory=Precision)
    remat: Remat = field(default_factory=Remat)
    seeds: Seeds = field(default_factory=Seeds)
    sharding: Sharding = field(default_factory=Sharding)
    trajectory: Trajectory = field(default_factory=Trajectory)
    generation: Generation = field(default_factory=Generation)
    root: Path = field(default=Path(), compare=False)

    @property
    def checkpoint_dir(self) -> Path:
        return (self.root / self.model.checkpoint).resolve()

    @property
    def rows_file(self) -> Path:
        return (self.root / self.data.rows).resolve()

    @property
    def prompts_file(self) -> Path | None:
        """None: the prompts are kept rows of data.rows."""
        return (self.root / self.generation.rows).resolve() if self.generation.rows else None

    @property
    def scale(self) -> float:
        """Factor of B·A: alpha / r, with rsLoRA alpha / sqrt(r)."""
        return self.adapter.alpha / (math.sqrt(self.adapter.rank) if self.adapter.rslora else self.adapter.rank)

    @property
    def digest(self) -> str:
        """Over every value but the paths, whose content has digests of its own in the plan and the manifest."""
        values = self.to_dict()
        del values["model"]["checkpoint"], values["data"]["rows"], values["generation"]["rows"]
        return sha256_json(values)

    def to_dict(self) -> dict:
        values = dataclasses.asdict(self)
        del values["root"]
        return values


def load_recipe(path: Path | str) -> Recipe:
    """Reads and checks a recipe file."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise ContractError(f"recipe {path}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractError(f"recipe {path}: not TOML: {error}") from error
    recipe = read_record(Recipe, values, where=path.name, skip=("root",))
    recipe = dataclasses.replace(recipe, root=path.resolve().parent)
    check_recipe(recipe, path.name)
    return recipe


def check_recipe(recipe: Recipe, where: str) -> None:
    """Refuses values that no run can have; each rule names key, value and what is allowed."""
    for key, value, allowed, good in _rules(recipe):
        if not good:
            raise ContractError(f"{where}: {key} = {value!r} is not allowed: {allowed}")


def _rules(recipe: Recipe):
    positive = {
        "adapter.rank": recipe.adapter.rank,
        "adapter.alpha": recipe.adapter.alpha,
        "data.max_tokens": recipe.data.max_tokens,
        "data.epochs": recipe.data.epochs,
        "batch.micro_batch": recipe.batch.micro_batch,
        "batch.accumulation": recipe.batch.accumulation,
        "batch.shards": recipe.batch.shards,
        "optimizer.learning_rate": recipe.optimizer.learning_rate,
        "optimizer.eps": recipe.optimizer.eps,
        "sharding.fsdp": recipe.sharding.fsdp,
        "sharding.tp": recipe.sharding.tp,
    }
    for key, value in positive.items():
        yield key, value, "must be above 0", value > 0
    clip = recipe.optimizer.clip_norm
    yield "optimizer.clip_norm", clip, 'must be above 0, or "none"', clip is None or clip > 0
    for key in ("beta1", "beta2"):
        value = getattr(recipe.optimizer, key)
        yield f"optimizer.{key}", value, "must lie in [0, 1)", 0 <= value < 1
    yield "optimizer.weight_decay", recipe.optimizer.weight_decay, "must not be negative", (recipe.optimizer.weight_decay >= 0)
    yield "adapter.dropout", recipe.adapter.dropout, "must lie in [0, 1)", 0 <= recipe.adapter.dropout < 1
    yield "schedule.warmup_steps", recipe.schedule.warmup_steps, "must not be negative", (recipe.schedule.warmup_steps >= 0)
    prompts = recipe.generation.prompt_rows
    yield "generation.prompt_rows", prompts, "16 different rows, or none", len(set(prompts)) == len(prompts) in (0, 16)
    yield "generation.rows", recipe.generation.rows, "needs generation.prompt_rows", bool(prompts) or recipe.generation.rows is None
    unknown = sorted(set(recipe.adapter.targets) - set(PROJECTIONS))
    yield "adapter.targets", unknown, f"each is one of {', '.join(PROJECTIONS)}", not unknown
    yield (
        "adapter.targets",
        recipe.adapter.targets,
        "at least one target, none twice",
        (0 < len(set(recipe.adapter.targets)) == len(recipe.adapter.targets)),
    )
    yield (
        "sharding.fsdp",
        recipe.sharding.fsdp,
        f"must divide batch.shards x micro_batch = {_rows(recipe)}",
        (_rows(recipe) % recipe.sharding.fsdp == 0),
    )


def _rows(recipe: Recipe) -> int:
    return recipe.batch.shards * recipe.batch.micro_batch
