"""A timed run of the recipe: the ladder's own, with light notes of every step. One launch of `parity bench`."""

from pathlib import Path

import torch
from accelerate.utils import gather_object

from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import RUN_OF, Consumed, StepLine
from conformance.contract.timed_steps import HBM, RSS, StackFacts, StepWriter, now_ns, peak_rss_bytes
from reference.environment import environment, prepare_process
from reference.processes import ending_together, process_index, processes
from reference.record import say
from reference.recorder import Recorder
from reference.session import Session
from reference.sharding import use_sharding
from reference.train import Run

NAME = "reference"


class StepTimer(Recorder):
    """Reads the clock when the device has finished a step. Until then nothing is read from it: inputs, losses and norms are held."""

    def __init__(self, writer: StepWriter | None, recipe: Recipe, plan: Plan):
        """`writer`: None in all processes but the first."""
        super().__init__(None, recipe, plan=plan)
        self._writer = writer

    def take(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(inputs)

    def value(self, scalar: torch.Tensor) -> torch.Tensor:
        return scalar.detach()

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        synchronize()
        self._end_ns = now_ns()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        synchronize()
        self._start_ns, self._end_ns = self._end_ns, now_ns()
        step = state.global_step - 1  # it is counted already
        read = super().value
        self._micro = [(self._consume(inputs, step, micro), read(loss)) for micro, (inputs, loss) in enumerate(self._micro)]
        self._grad_norm = read(self._grad_norm)
        super().on_step_end(args, state, control, **kwargs)

    def note(self, line: StepLine, consumed: list[Consumed]) -> None:
        if self._writer:
            self._writer.add(line, consumed, self._start_ns, self._end_ns)

    def on_train_end(self, args, state, control, **kwargs) -> None:
        """Weights and adapters are not read."""


def own_run(recipe: Recipe, *, steps: int | None = None, seed: int | None = None, save_every: int | None = None) -> Run:
    """The recipe's own run: its precision and checkpointing; `seed` None: its own. Its dropout is the model's."""
    checkpointing, seed = recipe.remat.policy != "none", recipe.seeds.dropout if seed is None else seed
    return Run(RUN_OF[recipe.precision.compute], checkpointing=checkpointing, steps=steps, seed=seed, save_every=save_every)


def bench(recipe: Recipe, out: Path, steps: int | None, seed: int | None) -> None:
    """Trains the recipe's own run and writes `out`; the first of several processes does."""
    prepare_process()
    use_sharding()
    writer = StepWriter(out) if process_index() == 0 else None
    with Session(recipe, say) as session, ending_together():
        timer = StepTimer(writer, recipe, session.plan)
        run = own_run(recipe, steps=steps, seed=seed)
        session.recorded_run(session.initial, run, label="timed", dropout=recipe.adapter.dropout, recorder=timer)
        peaks = gather_object([peak_memory_bytes()])
        if writer:
            writer.close(facts(run, max(peaks)))


def facts(run: Run, peak_bytes: int) -> StackFacts:
    about = environment() | {"precision": run.precision, "checkpointing": run.checkpointing}
    cuda = torch.cuda.is_available()
    platform, memory_of = ("gpu", HBM) if cuda else ("cpu", RSS)
    return StackFacts(
        NAME, platform, about.pop("device"), processes(), about["code_sha256"], about.pop("versions"), about,
        peak_memory_bytes=peak_bytes, memory_of=memory_of,
    )  # fmt: skip


def synchronize() -> None:
    """Waits until the device has done all that it was asked; a CPU has when it returns."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_memory_bytes() -> int:
    """Of this process's GPU, as its allocator counted; where there is none, of the process."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_rss_bytes()
