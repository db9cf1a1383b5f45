"""Two processes under the GPUs' own FSDP2 config take the steps of one; a lost process ends the other, and the run resumes."""

import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from conformance.contract.bundle import Bundle
from conformance.contract.draws import Tensors
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.contract.recipe import Batch, Recipe, Schedule
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.sharding import sharding_recipe
from reference.adapter import tensor_name
from reference.data import RowFinder, rows_of_process
from reference.processes import PEER_GONE, ProcessLostError, ending_together
from reference.record_sharding import RANKS
from reference.session import Session
from reference.sharding import Job, Observed, child_environment, config_environment, launch, launcher, observe, observe_processes
from reference.tests.rank_control import CONTROL, Control, leave, one_step
from reference.train import Run, split_batch, train

# The prototype's distance of two ranks from one over its first six steps, relative.
SAME_LOSS, SAME_NORM = 2e-6, 1e-5
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]


def short(recipe: Recipe, steps: int, folder: Path) -> Recipe:
    """The recipe on as many rows as `steps` optimizer steps take."""
    rows = recipe.rows_file.read_text().splitlines()[: steps * recipe.batch.effective]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    data = dataclasses.replace(recipe.data, rows=str(folder / "rows.jsonl"))
    return dataclasses.replace(recipe, data=data, schedule=dataclasses.replace(recipe.schedule, warmup_steps=1))


@dataclass(frozen=True, slots=True)
class Runs:
    """A short recipe of the rung in one process and in two, and controls by stock accelerate in two."""

    one: Observed
    one_bf16_loss: float
    two: Observed
    control: Control


@pytest.fixture(scope="module")
def runs(session, tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("ranks")
    with Session(short(sharding_recipe(session.recipe), 3, folder), silent) as alone:
        job = Job(alone.recipe, alone.rows, folder)
        two = observe_processes(RANKS, job, silent, "reference.tests.rank_control")
        half, _ = one_step(alone, "bf16", leave)
        return Runs(observe(alone, "ranks=1"), half, two, pickle.loads((folder / CONTROL).read_bytes()))


def silent(line: str) -> None:
    pass


def relative(value: float, other: float) -> float:
    return abs(value / other - 1)


def test_two_processes_take_the_steps_of_one(runs):
    pairs = [(runs.one.warm, runs.two.warm), *zip(runs.one.steps, runs.two.steps, strict=True)]
    assert max(relative(two.loss, one.loss) for one, two in pairs) <= SAME_LOSS
    assert max(relative(two.grad_norm, one.grad_norm) for one, two in pairs) <= SAME_NORM
    for name, value in runs.one.warm.gradients.items():
        assert np.linalg.norm(runs.two.warm.gradients[name] - value) <= SAME_NORM * np.linalg.norm(value)


def test_the_clip_is_by_the_norm_of_all_processes(runs):
    """Control: the norm of rank 0's own shards would clip by another factor."""
    shares = [value[: -(-len(value) // RANKS)] for value in runs.one.warm.gradients.values()]
    alone = float(np.sqrt(sum(np.square(share, dtype=np.float64).sum() for share in shares)))
    assert relative(runs.two.factor, runs.one.factor) <= SAME_NORM
    assert relative(1 / alone, runs.one.factor) > 1e3 * SAME_NORM


def test_each_process_takes_its_block_of_the_step(runs):
    for (whole,), blocks in zip(runs.one.shard_rows, runs.two.shard_rows, strict=True):
        assert len(blocks) == RANKS and [row for block in blocks for row in block] == whole
    counts = [[(line.tokens, line.loss_tokens, line.learning_rate) for line in seen.steps] for seen in (runs.one, runs.two)]
    assert counts[0] == counts[1]


def test_rows_of_equal_ids_are_told_apart_in_each_process(session, tmp_path):
    """Control: a finder in the order of all processes takes the second process's copy for the first's."""
    recipe = short(session.recipe, 1, tmp_path)
    recipe.rows_file.write_text("\n".join(recipe.rows_file.read_text().splitlines()[:1] * 2))
    plan = make_plan(dataclasses.replace(recipe, batch=Batch(1, 1, RANKS), schedule=Schedule(0)))
    orders = [rows_of_process(plan, 1, rank, RANKS) for rank in range(RANKS)]
    assert sum(orders, ()) == plan.order and len(plan.order) == RANKS
    ids = plan.rows[0].ids
    assert [(RowFinder(plan, order).find(ids),) for order in orders] == orders
    assert [(RowFinder(plan, plan.order).find(ids),) for _ in orders] != orders


def test_every_parameter_and_moment_is_sharded(runs, session):
    whole = {(leaf.group, leaf.name): leaf for leaf in runs.one.leaves}
    assert len(whole) == len(session.plan.topology.tensors) + 3 * len(session.initial)
    for leaf in runs.two.leaves:
        assert leaf.shape == whole[leaf.group, leaf.name].shape == whole[leaf.group, leaf.name].device_shape
        buffer = leaf.name.endswith("layer_scalar")  # no parameter: every process has it
        assert leaf.axes == [None if buffer else "fsdp", *[None] * (len(leaf.shape) - 1)]
        assert leaf.device_shape == [-(-leaf.shape[0] // (1 if buffer else RANKS)), *leaf.shape[1:]]


def test_stock_accelerate_shards_nothing_on_cpus(runs):
    """Control: without the way past its gate the same config gives plain tensors."""
    assert (runs.control.kind, runs.control.sharded) == ("MULTI_CPU", False)


def test_a_loss_over_each_process_own_targets_is_another(runs):
    """Control: each process divides by its own targets; on these rows that is 1.7e-4 off, 87 times the limit."""
    assert relative(runs.control.own_targets_loss, runs.one.warm.loss) > 10 * SAME_LOSS


def test_bf16_sums_in_float32(runs):
    assert relative(runs.control.bf16_loss, runs.one_bf16_loss) <= SAME_LOSS


def test_stock_bf16_rounds_the_loss(runs):
    """Control, and a stock defect: accelerate's own policy casts TRL's log-probabilities to bf16."""
    assert relative(runs.control.stock_bf16_loss, runs.one_bf16_loss) > 100 * SAME_LOSS


def test_torchrun_gets_what_accelerate_launch_exports(runs):
    assert config_environment() == runs.control.exported
    assert runs.control.exported["ACCELERATE_MIXED_PRECISION"] == "no"  # else a float32 recipe would train in bf16


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(command, env=child_environment(), stderr=subprocess.PIPE, text=True)


def kill_at(process: subprocess.Popen, mark: str, rank: str) -> str:
    """Kills one rank when the first progress line holds `mark` (each rank has one); returns all that was said on stderr."""
    said, victims = [], [rank]
    for line in process.stderr:
        said.append(line)
        if mark in line and victims:
            ranks = psutil.Process(process.pid).children(recursive=True)
            next(child for child in ranks if child.environ().get("RANK") == victims[0]).kill()
            victims.clear()
    process.wait()
    return "".join(said)


def test_a_lost_process_ends_the_other_and_the_run_resumes(session, tmp_path):
    """torchrun until the kill, accelerate launch after it: the adapter is the one of an uninterrupted process."""
    recipe, out = short(session.recipe, 4, tmp_path), tmp_path / "run"
    arguments = ["-m", "reference", "train", "--recipe", str(write_recipe(tmp_path / "r.toml", recipe)), "--out", str(out)]
    with start([*TORCHRUN, *arguments, "--save-every", "2"]) as process:
        said = kill_at(process, "step 3/4", rank="1")
    assert process.returncode and "reference: process 0 of 2 ends because another was lost" in said
    assert not (out / "adapter").exists() and not (out / "bundle").exists()
    launch([*launcher(RANKS), *arguments, "--resume", "--save-every", "2"], silent)
    with Session(recipe, silent) as alone:
        expected = train(alone.trainer(alone.initial, Run(), out=tmp_path / "alone"))
    assert [line["step"] for line in Bundle(out / "bundle").lines("trajectory", "step")] == [2, 3]
    _check_adapter(out / "adapter", expected)


def _check_adapter(folder: Path, expected: Tensors) -> None:
    """Whole tensors in PEFT's file, near those of one process (Adam's first steps blow a last bit up to 1e-5)."""
    saved = {tensor_name(name): value for name, value in load_file(folder / "adapter_model.safetensors").items()}
    assert saved.keys() == expected.keys()
    assert all(np.linalg.norm(saved[name] - value) <= 1e-4 * np.linalg.norm(value) for name, value in expected.items())


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_effective_batch_stays_with_more_processes(session, world):
    batch = session.recipe.batch
    rows, accumulation = split_batch(batch, world)
    assert rows * accumulation * world == batch.effective


@pytest.mark.parametrize("world", [3, 8])
def test_processes_that_would_change_the_batch_are_refused(session, world):
    """Control: 4 rows have no third, and no eighth."""
    with pytest.raises(ContractError, match=f"batch of 4 rows cannot be split over {world} processes"):
        split_batch(session.recipe.batch, world)


def test_only_a_lost_peer_is_called_one(monkeypatch):
    """Control: any other error of a process passes as it is."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ProcessLostError, match="a connection to it broke"), ending_together():
        raise RuntimeError(f"Connection closed {PEER_GONE[0]}")
    with pytest.raises(RuntimeError, match="shapes differ"), ending_together():
        raise RuntimeError("shapes differ")
