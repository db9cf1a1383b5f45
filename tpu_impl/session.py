"""What the recording of one recipe shares: plan, tokenised rows, models, the main run."""

import dataclasses
from contextlib import ExitStack
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from flax import nnx

from conformance.contract.draws import Tensors, WarmState, initial_adapter, warm_state
from conformance.contract.plan import Plan, make_plan
from conformance.contract.progress import Progress
from conformance.contract.recipe import Recipe
from conformance.contract.topology import Weight
from tpu_impl.adapter import adapted, attach_adapter, set_adapter, split_kv
from tpu_impl.data import TokenisedRow, load_tokenizer, tokenise
from tpu_impl.environment import compilation_cache
from tpu_impl.merge import merge
from tpu_impl.model import load_checkpoint
from tpu_impl.recorder import Recorder
from tpu_impl.sharding import current_mesh, place_model
from tpu_impl.train import Run, Trainer, make_trainer, run_data, train


class Session:
    """Lazily made parts of a recording. An adapted model is made once per precision and dropout: a new one compiles anew."""

    def __init__(self, recipe: Recipe, progress: Progress, shared: Path | None = None):
        """`shared`: a folder that every process of the run sees, for checkpoints; a single process needs none."""
        self.recipe, self.progress, self._shared = recipe, progress, shared
        self._attached = cache(self._attach)

    def __enter__(self) -> "Session":
        self._folders = ExitStack()
        self._folders.enter_context(compilation_cache())
        return self

    def __exit__(self, *_) -> None:
        self._folders.close()

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.recipe)

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        return adapted(self.plan.topology, self.recipe)

    @cached_property
    def initial(self) -> Tensors:
        return initial_adapter(self.recipe, self.weights)

    @cached_property
    def warm(self) -> WarmState:
        return warm_state(self.recipe, self.weights)

    @cached_property
    def tokenizer(self):
        return load_tokenizer(self.recipe.checkpoint_dir)

    @cached_property
    def rows(self) -> dict[int, TokenisedRow]:
        return tokenise(self.plan, self.tokenizer)

    @cached_property
    def scratch(self) -> Path:
        """A folder that goes when the session ends."""
        return Path(self._folders.enter_context(TemporaryDirectory(prefix="tpu_impl-")))

    @property
    def shared(self) -> Path:
        return self._shared or self.scratch

    def base(self, precision: str = "f32"):
        return load_checkpoint(self.recipe.checkpoint_dir, precision)

    def attached(self, precision: str = "f32", dropout: float = 0.0, remat: str = "none"):
        """The adapted model of a kind, with whatever adapter was set last."""
        return self._attached(precision, dropout, remat)

    def adapted(self, tensors: Tensors, precision: str = "f32", dropout: float = 0.0, remat: str = "none"):
        """The base with an adapter, on the surrounding mesh if any.

        Models of one kind share their weights, so the last `tensors` set are everyone's.
        """
        model = self.attached(precision, dropout, remat)
        set_adapter(model, tensors)
        if mesh := current_mesh():
            place_model(model, self.plan.topology, mesh)
        return model

    def _attach(self, precision: str, dropout: float, remat: str):
        adapter = dataclasses.replace(self.recipe.adapter, dropout=dropout)
        return attach_adapter(self.base(precision), dataclasses.replace(self.recipe, adapter=adapter), remat)

    @cached_property
    def no_adapter(self) -> Tensors:
        """An adapter that adds exactly 0: the base (or a merged checkpoint) by the program that runs the adapted model."""
        return {name: 0 * value for name, value in self.initial.items()}

    def with_base(self, folder: Path):
        """The float32 model with another checkpoint's weights and no adapter."""
        model, other = nnx.clone(self.adapted(self.no_adapter)), load_checkpoint(folder)
        split_kv(other)
        nnx.update(model, nnx.state(other))
        return model

    def trainer(self, tensors: Tensors, run: Run, *, out: Path | None = None) -> Trainer:
        return make_trainer(self.adapted(tensors, run.precision, run.dropout, run.remat), self.plan, run, out)

    def recorded_run(
        self, tensors: Tensors, run: Run, *, label: str, out: Path | None = None, recorder: Recorder | None = None
    ) -> tuple[Recorder, Trainer]:
        """Trains a run from `tensors`; its recorder (`recorder`: another than the ladder's) and the trainer at its end."""
        trainer = self.trainer(tensors, run, out=out)
        recorder = recorder or Recorder(None, self.recipe, plan=self.plan)
        recorder.progress = lambda line: self.progress(f"{label} {line}")
        train(recorder.attach(trainer).trainer, run_data(self.plan, self.rows, run))
        return recorder, trainer

    @cached_property
    def main_run(self) -> Recorder:
        """The float32 run that *batches*, *adapters*, *trajectory*, *merge* and *generation* build on."""
        return self.recorded_run(self.initial, Run(seed=self.recipe.seeds.dropout), label="f32")[0]

    @cached_property
    def merged(self) -> Path:
        """The base merged with the main run's adapter: what *generation* loads in either precision."""
        folder = self.scratch / "merged"
        merge(self.recipe, self.main_run.final, folder)
        return folder
