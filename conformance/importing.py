"""A partial bundle from what people already have: an adapter folder, an Orbax step, training logs. What they can't show stays out."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from conformance.adapter_folder import CONFIG, TENSORS, read_adapter
from conformance.children import ENVIRONMENT
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan, make_plan
from conformance.contract.recipe import PROJECTIONS, Recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.logs import Log, read_tensorboard, read_trainer_state


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is to import; at least one, and an adapter from one place only."""

    adapter: Path | None = None
    orbax: Path | None = None
    trainer_state: Path | None = None
    tensorboard: Path | None = None

    def check(self) -> None:
        if not any((self.adapter, self.orbax, self.trainer_state, self.tensorboard)):
            raise ContractError("nothing to import: give --adapter, --orbax, --trainer-state or --tensorboard")
        for one, other in (("adapter", "orbax"), ("trainer_state", "tensorboard")):
            if getattr(self, one) and getattr(self, other):
                names = " and ".join(f"--{name.replace('_', '-')}" for name in (one, other))
                raise ContractError(f"{names} say the same thing: give one of them")


def import_bundle(recipe: Recipe, out: Path, stack: str, sources: Sources) -> tuple[str, ...]:
    """Writes the bundle `out`; returns one sentence for each thing that a source had and the bundle could not take."""
    sources.check()
    plan = make_plan(recipe)
    notes: list[str] = []
    with TemporaryDirectory() as scratch, BundleWriter(out, stack=stack, recipe=recipe, plan=plan) as writer:
        imported = []
        if sources.adapter or sources.orbax:
            folder = sources.adapter or _folder_of_step(sources.orbax, recipe, Path(scratch))
            _write_adapter(writer, plan, folder, (sources.adapter or sources.orbax).name)
            imported.append({"from": str(sources.adapter or sources.orbax), "sha256": sha256_file(folder / TENSORS)})
        if sources.trainer_state or sources.tensorboard:
            log = read_trainer_state(sources.trainer_state) if sources.trainer_state else read_tensorboard(sources.tensorboard)
            notes += _write_log(writer, plan, log)
            imported.append({"from": str(log.source), "precision": log.precision, "notes": notes})
        writer.manifest(imported=imported, device="unknown: imported after the fact")
    return tuple(notes)


def _write_adapter(writer: BundleWriter, plan: Plan, folder: Path, name: str) -> None:
    """The trained adapter: its folder for the peer to load, its names and shapes, its values at the end of training."""
    tensors = read_adapter(folder, plan.recipe, plan.topology)
    for rung in ("adapters", "trajectory"):
        writer.partial(rung, f"imported from {name}/, the trained adapter")
    for weight in plan.topology.adapted(PROJECTIONS):
        if f"{weight.name}.lora_A" in tensors:
            shapes = {f"{side}_shape": list(tensors[f"{weight.name}.lora_{side.upper()}"].shape) for side in "ab"}
            writer.line("adapters", "targets", weight=weight.name, layer=weight.layer, layer_type=weight.layer_type, **shapes)
    writer.line("adapters", "facts", trainable_params=sum(value.size for value in tensors.values()))
    for tensor, value in tensors.items():
        writer.array("trajectory", f"f32/final/{tensor}", value)
    writer.folder("adapter").mkdir()
    for file in (CONFIG, TENSORS):
        shutil.copyfile(folder / file, writer.folder("adapter") / file)


def _write_log(writer: BundleWriter, plan: Plan, log: Log) -> list[str]:
    """Every logged value as the logger counts its steps; the rate of each optimizer step where all of them are known."""
    if log.planned is not None and log.planned != plan.total_steps:
        planned = f"max_steps = {log.planned}; the recipe's plan has {plan.total_steps}"
        raise ContractError(f"{log.source}: {planned}: another recipe, or other rows")
    if not log.series("loss"):
        raise ContractError(f"{log.source}: no training loss in it")
    reason = f"imported from {log.source.name} ({log.precision})"
    writer.partial("trajectory", reason)
    for step, values in sorted(log.values.items()):
        writer.line("trajectory", "logged", logged_step=step, **values)
    rates, problem = _rates(plan, log)
    if problem:
        return [problem]
    writer.partial("batches", reason)
    for step, rate in enumerate(rates):
        writer.line("batches", "steps", step=step, learning_rate=rate)
    return []


def _rates(plan: Plan, log: Log) -> tuple[list[float], str]:
    """(learning rate of every optimizer step, "") or ([], why they are not known)."""
    found = log.series("learning_rate")
    steps, total = sorted(found), plan.total_steps
    if not found:
        return [], f"{log.source}: no learning rates in it"
    if steps not in (list(range(total)), list(range(1, total + 1))):
        logged = f"{len(steps)} logged steps, from {steps[0]} to {steps[-1]}"
        return [], f"{log.source}: learning rates of {logged}; the plan has {total} steps"
    rates, table = np.asarray([found[step] for step in steps], np.float32), plan.learning_rates.astype(np.float32)
    if not np.array_equal(rates, table) and np.array_equal(rates[:-1], table[1:]):
        # Older Trainers log after the scheduler has moved on; a schedule that is a step ahead looks the same.
        return [], f"{log.source}: each learning rate is that of the plan's next step: logged late, or trained early; not decided"
    return [found[step] for step in steps], ""


def _folder_of_step(step: Path, recipe: Recipe, scratch: Path) -> Path:
    """The adapter of an Orbax step as a PEFT folder, by the port's own layout, in a process of its own: the suite imports no JAX."""
    if not step.is_dir():
        raise ContractError(f"{step}: no such folder")
    if find_spec("orbax") is None or find_spec("tunix") is None:
        raise ContractError(f"{step}: reading an Orbax step needs the extra `port`: pip install 'tpu-parity[port]'")
    file, out = write_recipe(scratch / "recipe.toml", recipe), scratch / "adapter"
    command = [sys.executable, "-m", "tpu_impl", "adapter", "--step", str(step.resolve()), "--recipe", str(file), "--out", str(out)]
    done = subprocess.run(command, env=ENVIRONMENT | os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
        raise ContractError(last[0].removeprefix("port: "))
    return out
