"""What the recording of one recipe shares: plan, tokenised rows, fresh models and trainers, the main run."""

from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from peft import PeftModel

from conformance.contract.draws import Tensors, WarmState, initial_adapter, warm_state
from conformance.contract.plan import Plan, make_plan
from conformance.contract.progress import Progress
from conformance.contract.recipe import Recipe
from conformance.contract.topology import Weight
from reference.adapter import adapted, attach_adapter, set_adapter
from reference.data import TokenisedRow, load_tokenizer, tokenise
from reference.model import load_checkpoint
from reference.recorder import Recorder
from reference.train import ReferenceTrainer, Run, make_trainer, train


class Session:
    """Lazily made parts of a recording; every model is loaded anew, so that no rung sees another's traces."""

    def __init__(self, recipe: Recipe, progress: Progress, members: list[Future] | None = None):
        """`members`: the repeated training runs, where they run in other processes."""
        self.recipe, self.progress, self.members = recipe, progress, members

    def __enter__(self) -> "Session":
        self._folders = ExitStack()
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
        return tokenise(self.plan, self.base(), self.tokenizer)

    @cached_property
    def scratch(self) -> Path:
        """A folder that goes when the session ends."""
        return Path(self._folders.enter_context(TemporaryDirectory(prefix="reference-")))

    def base(self, precision: str = "f32"):
        return load_checkpoint(self.recipe.checkpoint_dir, precision, self.recipe.model.attention)

    def adapted(self, tensors: Tensors | None = None, precision: str = "f32", dropout: float = 0.0) -> PeftModel:
        """The base with an adapter; `tensors` None leaves PEFT's own start. Without dropout unless asked for: coupled runs, single
        steps and single forward passes need equal arithmetic."""
        model = attach_adapter(self.base(precision), self.recipe, dropout)
        if tensors is not None:
            set_adapter(model, tensors)
        return model

    def trainer(
        self, tensors: Tensors, run: Run, *, dropout: float = 0.0, rows: dict[int, TokenisedRow] | None = None,
        out: Path | None = None,
    ) -> ReferenceTrainer:  # fmt: skip
        model = self.adapted(tensors, run.precision, dropout)
        return make_trainer(model, self.plan, rows or self.rows, self.tokenizer, run, out or self.scratch)

    def recorded_run(
        self, tensors: Tensors, run: Run, *, label: str, dropout: float = 0.0, recorder: Recorder | None = None
    ) -> Recorder:
        """Trains a run from `tensors` and returns what its recorder noted; `recorder`: another than the ladder's."""
        trainer = self.trainer(tensors, run, dropout=dropout)
        recorder = recorder or Recorder(None, self.recipe, plan=self.plan)
        recorder.progress = lambda line: self.progress(f"{label} {line}")
        recorder.attach(trainer)
        train(trainer, run.precision, rounding=run.rounding)
        return recorder

    @cached_property
    def main_run(self) -> Recorder:
        """The float32 run that *batches*, *adapters*, *trajectory*, *merge* and *generation* build on."""
        run = Run(checkpointing=self.recipe.remat.policy != "none", seed=self.recipe.seeds.dropout)
        return self.recorded_run(self.initial, run, label="f32")
