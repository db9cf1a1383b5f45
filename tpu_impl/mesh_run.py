"""One mesh's run, in a process that has the devices; `record_sharding` starts it and reads what it leaves in its folder.

    python -m tpu_impl.mesh_run RECIPE FSDP TP DATA FOLDER [STEPS]

With STEPS it only trains so far, from the last checkpoint in FOLDER. Process i of several leaves its results in FOLDER/i.
"""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import jax

from conformance.contract.checkpoint_files import write_file
from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY
from conformance.contract.recipe import load_recipe
from conformance.contract.sharding import STEPS, Mesh, fallbacks
from tpu_impl.data import collate
from tpu_impl.environment import prepare_process
from tpu_impl.leaves import Leaf, input_leaves, leaves_of, row_shards, stream_leaves
from tpu_impl.mesh_restore import SAVED, restores
from tpu_impl.optimizer import ClipState, part_of
from tpu_impl.processes import joined, place_from
from tpu_impl.recorder import Recorder
from tpu_impl.session import Session
from tpu_impl.sharding import make_mesh, on_mesh, place_rows
from tpu_impl.step import step_gradients
from tpu_impl.train import Run, Trainer, run_data, train

STEP_FUNCTIONS = ("jit(loss_and_gradients)", "jit(apply_gradients)")  # a training step is these two programs
COMPILED = "/jax/core/compile/backend_compile_duration"
RUN = Run(steps=STEPS)
REFUSING, UNEVEN_ROWS = Mesh(8, 1), 7
ARRAYS, LINES, CHECKPOINTS = "arrays.safetensors", "lines.jsonl", "checkpoints"
SAVE_EVERY = 2


class Compiles:
    """Counts how often each jitted function is compiled, until a trainer is closed: Tunix then clears everybody's listeners."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, seconds: float, *, fun_name: str = "", **_) -> None:
        self.counts[fun_name] += event == COMPILED

    @property
    def of_step(self) -> int:
        """1: each program of the training step was compiled once."""
        return max(self.counts[name] for name in STEP_FUNCTIONS)


@dataclass(frozen=True, slots=True)
class Warm:
    """The warm state's step on a mesh: mean loss over the step's targets, global norm, clip factor, gradients by name."""

    loss: float
    grad_norm: float
    factor: float
    gradients: Tensors


class MeshRun:
    """The model on one mesh. Everything inside `with on_mesh(...)`."""

    def __init__(self, session: Session, mesh: Mesh):
        self.session, self.mesh, self.placed = session, mesh, make_mesh(mesh)
        self.batches: list[dict[str, jax.Array]] = []
        self.saving = dataclasses.replace(RUN, save_every=STEPS)

    def start(self, tensors: Tensors, run: Run, out: Path | None = None) -> Trainer:
        """A trainer on the mesh, from an adapter or from the last checkpoint in `out`."""
        return self.session.trainer(tensors, run, out=out)

    def warm(self) -> Warm:
        """Gradients by the trainer's own function, norm and factor by its own step."""
        trainer = self.start(self.session.warm.adapter, RUN)
        batch = run_data(self.session.plan, self.session.rows, RUN)[0]
        step, _ = trainer.jit_train_and_eval_step()
        gradients = step_gradients(trainer.model, [batch]).gradients
        loss, _, _ = step(place_rows(batch))
        clip = part_of(trainer.optimizer.opt_state, ClipState)
        return Warm(float(loss), float(clip.grad_norm[...]), float(clip.factor[...]), gradients)

    def trajectory(self, run: Run, out: Path | None = None) -> tuple[Recorder, Trainer]:
        trainer = self.start(self.session.initial, run, out).with_gen_model_input_fn(self._watched)
        recorder = Recorder(None, self.session.recipe, plan=self.session.plan, progress=self.session.progress)
        train(recorder.attach(trainer).trainer, run_data(self.session.plan, self.session.rows, run))
        return recorder, trainer

    def _watched(self, batch: dict) -> dict:
        """Keeps what the jitted step is given; the recorder asks too, with the host's arrays."""
        if isinstance(batch["input_tokens"], jax.Array):
            self.batches.append(batch)
        return batch

    def consumed(self) -> Iterator[dict]:
        row_of = {row.ids.tobytes(): row.row for row in self.session.plan.rows} | {b"": EMPTY}  # padding alone
        for step, batch in enumerate(self.batches):
            yield {"step": step, **asdict(row_shards(batch, row_of))}

    def refusal(self, trainer: Trainer, rows: int) -> str:
        """What the trainer refuses a step of so many rows with, without the recorder that is attached to it; empty: it takes them."""
        taken = list(self.session.rows.values())[:rows]
        try:
            type(trainer)._prepare_inputs(trainer, collate(taken, self.session.plan.pad_id))
        except ContractError as error:
            return str(error)
        return ""


def lines_of(run: MeshRun, warm: Warm, compiles: int, recorder: Recorder, leaves: list[Leaf]) -> Iterator[dict]:
    """Lines of the rung, as the schema names them but for the mesh's name."""
    yield {
        "series": "warm", "devices": run.placed.size, "processes": jax.process_count(), "loss": warm.loss,
        "grad_norm": warm.grad_norm, "factor": warm.factor, "compiles": compiles,
    }  # fmt: skip
    for line in run.consumed():
        yield {"series": "consumed", **line}
    yield from step_lines(recorder)
    for leaf in leaves:
        yield {"series": "leaf", **asdict(leaf)}
    axes = {leaf.name: leaf.axes for leaf in leaves if leaf.group in ("weight", "adapter")}
    for fallback in fallbacks(run.session.plan.topology, run.mesh, tuple(axes)):
        if axes[fallback.tensor][fallback.dim] is None:
            fields = dataclasses.asdict(fallback)
            yield {"series": "fallback", "name": fields.pop("tensor"), **fields}


def step_lines(recorder: Recorder) -> Iterator[dict]:
    fields = ("step", "loss", "grad_norm", "learning_rate")
    for step in recorder.steps:
        yield {"series": "step", **{name: getattr(step, name) for name in fields}}


def extra_lines(run: MeshRun, trainer: Trainer, out: Path) -> Iterator[dict]:
    """What one mesh is enough for."""
    if run.mesh == REFUSING and jax.process_count() == 1:
        message, case = run.refusal(trainer, UNEVEN_ROWS), f"{UNEVEN_ROWS} rows over {run.mesh.devices} devices"
        yield {"series": "refusals", "case": case, "refused": bool(message), "message": message}
    if run.mesh == SAVED:
        for stream in stream_leaves(trainer.model, run.batches[-1]):
            yield {"series": "leaf", **asdict(stream)}
        for restore in restores(run, trainer, out):
            yield {"series": "restore", **asdict(restore)}


def run_mesh(session: Session, mesh: Mesh, folder: Path) -> None:
    run, compiles, out = MeshRun(session, mesh), Compiles(), folder / CHECKPOINTS
    with on_mesh(run.placed):
        warm = run.warm()
        recorder, trainer = run.trajectory(run.saving if mesh == SAVED else RUN, out)
        leaves = leaves_of(trainer) + input_leaves(run.batches[-1])
        lines = [*lines_of(run, warm, compiles.of_step, recorder, leaves), *extra_lines(run, trainer, out)]
    write_file(own_folder(folder) / ARRAYS, warm.gradients)
    write_lines(folder, lines)


def train_on(session: Session, mesh: Mesh, folder: Path, steps: int) -> None:
    """Trains up to `steps`, saving every second one."""
    run = MeshRun(session, mesh)
    with on_mesh(run.placed):
        recorder, _ = run.trajectory(dataclasses.replace(RUN, steps=steps, save_every=SAVE_EVERY), folder / CHECKPOINTS)
    write_lines(folder, step_lines(recorder))


def own_folder(folder: Path) -> Path:
    own = folder / str(jax.process_index())
    own.mkdir(exist_ok=True)
    return own


def write_lines(folder: Path, lines: Iterable[dict]) -> None:
    (own_folder(folder) / LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))


def main(recipe: str, fsdp: str, tp: str, data: str, folder: str, steps: str = "") -> None:
    prepare_process()
    mesh = Mesh(int(fsdp), int(tp), int(data))
    with joined(place_from()), Session(load_recipe(Path(recipe)), print) as session:
        train_on(session, mesh, Path(folder), int(steps)) if steps else run_mesh(session, mesh, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
