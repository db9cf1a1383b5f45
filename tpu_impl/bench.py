"""A timed run of the recipe: the ladder's own, with light notes of every step. One launch of `parity bench`."""

from pathlib import Path

import jax
from flax import nnx

from conformance.contract.digest import sha256_tree
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import RUN_OF, Consumed, StepLine
from conformance.contract.timed_steps import HBM, RSS, StackFacts, StepWriter, now_ns, peak_rss_bytes
from tpu_impl.environment import environment
from tpu_impl.processes import gather
from tpu_impl.recorder import Recorder
from tpu_impl.session import Session
from tpu_impl.sharding import current_mesh
from tpu_impl.train import Held, Run

NAME = "tpu_impl"
COMPILED = "/jax/core/compile/backend_compile_duration"  # jax._src.dispatch.BACKEND_COMPILE_EVENT


class StepTimer(Recorder):
    """Reads the clock when the device has finished a step: PeftTrainer's hooks come a step late, its writing of metrics does not."""

    def __init__(self, writer: StepWriter | None, recipe: Recipe, plan: Plan):
        """`writer`: None in all processes but the first."""
        super().__init__(None, recipe, plan=plan)
        self._writer, self._times_ns = writer, []

    def attach(self, trainer) -> "StepTimer":
        write = trainer._write_train_metrics

        def write_train_metrics() -> None:
            if trainer.train_steps - self._first == len(self._times_ns):  # not when the trainer closes
                jax.block_until_ready([one.read() for one in self._trained])
                self._times_ns.append(now_ns())
            write()

        trainer._write_train_metrics = write_train_metrics
        return super().attach(trainer)

    def on_train_start(self, trainer) -> None:
        self._first = self._noted = trainer.train_steps
        self._trained = [Held(nnx.state(trainer.model, nnx.LoRAParam)), Held(trainer.optimizer.opt_state)]
        jax.block_until_ready([one.read() for one in self._trained])
        self._times_ns.append(now_ns())

    def note(self, line: StepLine, consumed: list[Consumed]) -> None:
        if self._writer:
            self._writer.add(line, consumed, *self._times_ns[line.step - self._first :][:2])

    def on_train_end(self, trainer) -> None:
        """Weights and adapters are not read."""
        self._note_optimizer(trainer)
        self._ended = True


def own_run(recipe: Recipe, *, steps: int | None = None, seed: int | None = None, save_every: int | None = None) -> Run:
    """The recipe's own run: its precision, dropout and rematerialisation; `seed` None: its own."""
    precision, seed = RUN_OF[recipe.precision.compute], recipe.seeds.dropout if seed is None else seed
    kept = {"dropout": recipe.adapter.dropout, "remat": recipe.remat.policy}
    return Run(precision, steps=steps, seed=seed, save_every=save_every, **kept)


def bench(session: Session, run: Run, out: Path, stack: str = NAME, code: Path = Path(__file__).parent) -> None:
    """Trains the run, on the mesh around it if any, and writes `out`; the first of several processes does. `code`: the stack's."""
    writer = StepWriter(out) if jax.process_index() == 0 else None
    compiled_s: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, s, **_: compiled_s.append(s) if name == COMPILED else None)
    session.recorded_run(session.initial, run, label="timed", recorder=StepTimer(writer, session.recipe, session.plan))
    peaks = [peak for peak in gather(peak_memory_bytes()) if peak]
    if writer:
        writer.close(facts(run, stack, code, sum(compiled_s), max(peaks, default=None)))


def facts(run: Run, stack: str, code: Path, compile_s: float, peak_bytes: int | None) -> StackFacts:
    about, mesh = environment() | {"precision": run.precision, "remat": run.remat}, current_mesh()
    platform = jax.default_backend()
    return StackFacts(
        stack, platform, about.pop("device"), mesh.size if mesh else 1, sha256_tree(code), about.pop("versions"), about,
        compile_s=compile_s, peak_memory_bytes=peak_bytes, memory_of=RSS if platform == "cpu" else HBM,
    )  # fmt: skip


def peak_memory_bytes() -> int | None:
    """Of this process's fullest chip, as its allocator counted; None where it does not. A CPU has none, there it is the process's."""
    if jax.default_backend() == "cpu":
        return peak_rss_bytes()
    return max((one.memory_stats() or {}).get("peak_bytes_in_use", 0) for one in jax.local_devices()) or None
