"""What test_sharding.py asks of a process with 8 devices: python -m tpu_impl.tests.on_8_devices RECIPE; answers in JSON."""

import dataclasses
import json
import sys
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from conformance.contract.recipe import load_recipe
from conformance.contract.sharding import ONE, Mesh
from tpu_impl.corrections import ALL
from tpu_impl.environment import prepare_process
from tpu_impl.layout import lora_tensors
from tpu_impl.leaves import leaf, leaves_of, row_shards, stream_leaves
from tpu_impl.mesh_run import RUN, Compiles, MeshRun
from tpu_impl.session import Session
from tpu_impl.sharding import make_mesh, on_mesh, place_model, place_rows, put
from tpu_impl.train import run_data

SPLIT = Mesh(4, 2)
TRAINED_STEPS = 6


def answers(session: Session) -> dict:
    compiles = Compiles()
    one, split = MeshRun(session, ONE), MeshRun(session, SPLIT)
    with on_mesh(one.placed):
        whole = one.warm()
    before = compiles.of_step
    with on_mesh(split.placed):
        parted, again = split.warm(), split.warm()
        counted = compiles.of_step - before
        widths = about_widths(session, split, compiles)  # before a trainer is closed, which ends the counting
        found = {
            "difference": {name: relative(parted.gradients[name], value) for name, value in whole.gradients.items()},
            "again": {name: relative(again.gradients[name], value) for name, value in parted.gradients.items()},
            "norms": [whole.grad_norm, parted.grad_norm],
            "compiles": counted,
            "losses": [step.loss for step in split.trajectory(dataclasses.replace(RUN, steps=TRAINED_STEPS))[0].steps],
        }
        return found | widths | about_leaves(session, split) | {"stock": stock_refusal(session)}


def relative(value: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(value - other) / np.linalg.norm(other))


def about_leaves(session: Session, run: MeshRun) -> dict:
    """Every leaf; then one adapter tensor that a dropped rule would leave whole on every device."""
    trainer = run.start(session.initial, RUN)
    batch = place_rows(run_data(session.plan, session.rows, RUN)[0])
    rows = row_shards(batch, {row.ids.tobytes(): row.row for row in session.plan.rows})
    found = {"leaves": [asdict(one) for one in leaves_of(trainer)], "rows": rows.shard_rows}
    tensor = next(tensor for tensor in lora_tensors(trainer.model) if tensor.name.endswith("q_proj.lora_B"))
    replicated = put(tensor.read().T.reshape(tensor.variable.shape), NamedSharding(run.placed, PartitionSpec()))
    streams = {"streams": stream_leaves(trainer.model, batch), "free_streams": free_streams(run, trainer, batch)}
    found |= {name: [asdict(one) for one in leaves] for name, leaves in streams.items()}
    return found | {"dropped": asdict(leaf("adapter", tensor, replicated))}


def free_streams(run: MeshRun, trainer, batch: dict) -> list:
    """Where XLA puts them by itself. A program of its own: what was compiled with the constraints is forgotten."""
    jax.clear_caches()
    with on_mesh(run.placed, dataclasses.replace(ALL, constrained_streams=False)):
        return stream_leaves(trainer.model, batch)


def about_widths(session: Session, run: MeshRun, compiles: Compiles) -> dict:
    """A second width is a second program: the count would show a step that compiles again."""
    step, _ = run.start(session.initial, RUN).jit_train_and_eval_step()
    before = compiles.of_step
    batch = run_data(session.plan, session.rows, RUN)[0]
    step(place_rows({name: value[:, : value.shape[1] // 2] for name, value in batch.items()}))
    return {"second_width": compiles.of_step - before}


def stock_refusal(session: Session) -> str:
    """What JAX says to Tunix's own notes on a mesh whose tp does not divide the KV heads."""
    session._attached.cache_clear()
    model = session.adapted(session.initial)  # a new one, whose notes no rule has corrected
    try:
        place_model(model, session.plan.topology, make_mesh(Mesh(2, 4)), dataclasses.replace(ALL, split_by_rule=False))
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    prepare_process()
    with Session(load_recipe(Path(sys.argv[1])), lambda line: None) as opened:
        print(json.dumps(answers(opened)))
