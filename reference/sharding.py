"""FSDP2 over several processes: the accelerate config of the GPUs, in effect on CPUs and under torchrun too; what a run shows."""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.tensor import DTensor

from conformance.contract.draws import Tensors
from conformance.contract.progress import Progress
from conformance.contract.recipe import Recipe
from conformance.contract.run_record import StepLine
from conformance.contract.sharding import FSDP, STEPS, Leaf
from reference.adapter import adapter_parameters
from reference.data import TokenisedRow
from reference.model import to_numpy, weights_of
from reference.processes import processes
from reference.recorder import Recorder
from reference.session import Session
from reference.step import MOMENTS, StepGradients
from reference.train import ReferenceTrainer, Run, train

CONFIG = Path(__file__).with_name("fsdp2.yaml")
EXPORTED = ("ACCELERATE_", "FSDP_")
JOB, OBSERVED = "job.pickle", "observed.pickle"
SPOKEN = "[reference "  # how a progress line of `record.say` begins


def use_sharding() -> None:
    """What each of several processes does before its first trainer."""
    if processes() > 1:
        os.environ.update(config_environment() | dict(os.environ))
        reach_fsdp_on_cpu()


def config_environment(count: int = 2) -> dict[str, str]:
    """What `accelerate launch --config_file fsdp2.yaml` exports, by accelerate's own translation: torchrun exports nothing."""
    options = ["--config_file", str(CONFIG), "--num_processes", str(count), "--main_process_port", "0", "script"]
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(options))
    return {key: value for key, value in prepare_multi_gpu_env(arguments).items() if key.startswith(EXPORTED)}


def reach_fsdp_on_cpu() -> None:
    """Lets several CPU processes through accelerate's gate to FSDP.

    Stock: AcceleratorState turns MULTI_GPU, MULTI_XPU and others into FSDP when the config asks for it, but leaves MULTI_CPU out
    of its list, so that the same config silently trains with DDP there. Here: the branch's three assignments for MULTI_CPU.
    """
    stock = AcceleratorState.__init__

    def with_cpu(self, *args, fsdp_plugin=None, **kwargs) -> None:
        stock(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU and fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = with_cpu


def leaves(trainer: ReferenceTrainer) -> list[Leaf]:
    """Every weight under its hub name, every adapter tensor, both moments of each adapter tensor."""
    parameters, state = adapter_parameters(trainer.model), trainer.optimizer.state
    groups = {"weight": weights_of(trainer.model), "adapter": parameters}
    for moment, key in MOMENTS.items():
        groups[moment] = {name: state[parameter][key] for name, parameter in parameters.items()}
    return [_leaf(group, name, tensor) for group, tensors in groups.items() for name, tensor in tensors.items()]


def _leaf(group: str, name: str, tensor: torch.Tensor) -> Leaf:
    sharded = isinstance(tensor, DTensor)
    cut = {placement.dim for placement in tensor.placements if placement.is_shard()} if sharded else set()
    axes = [FSDP if dim in cut else None for dim in range(tensor.ndim)]
    local = tensor.to_local() if sharded else tensor
    return Leaf(group, name, list(tensor.shape), axes, list(local.shape))


@dataclass(frozen=True, slots=True)
class Observed:
    """What one mesh did: the warm step with its clip factor, the trajectory's recorder notes, the leaves at its end."""

    warm: StepGradients
    factor: float
    shard_rows: list[list[list[int]]]  # [step][rank]
    steps: list[StepLine]
    leaves: list[Leaf]


def observe(session: Session, label: str) -> Observed:
    """Runs the warm step and the trajectory in this process, or as one of several that all call this."""
    warm, factor = warm_step(session)
    run = sharding_run(session, steps=min(STEPS, session.plan.total_steps))
    recorder = session.recorded_run(session.initial, run, label=label)
    rows = [[one.rows for one in recorder.consumed if one.step == line.step] for line in recorder.steps]
    return Observed(warm, factor, rows, recorder.steps, leaves(recorder.trainer))


def sharding_run(session: Session, steps: int, precision: str = "f32") -> Run:
    """Each step in one micro-batch, its rows cut into as many blocks as there are processes."""
    return Run(precision, accumulation=1, steps=steps, checkpointing=session.recipe.remat.policy != "none")


def warm_step(session: Session) -> tuple[StepGradients, float]:
    """(loss, norm and gradients before clipping; factor that the clip applied) of a real step from the warm adapter."""
    trainer = session.trainer(session.warm.adapter, sharding_run(session, steps=1), dropout=0.0)
    recorder = Recorder(None, session.recipe, plan=session.plan).attach(trainer)
    clip, seen = trainer.accelerator.clip_grad_norm_, []

    def watched(*args, **kwargs):
        seen.append(_gradients(trainer))
        norm = clip(*args, **kwargs)
        seen.append(_gradients(trainer))
        return norm

    trainer.accelerator.clip_grad_norm_ = watched
    train(trainer)
    line, (before, after) = recorder.steps[0], seen
    return StepGradients(line.loss, line.grad_norm, before), _factor(before, after)


def _gradients(trainer: ReferenceTrainer) -> Tensors:
    return {name: to_numpy(value.grad) for name, value in adapter_parameters(trainer.model).items()}


def _factor(before: Tensors, after: Tensors) -> float:
    """Measured on the largest element, not computed."""
    name = max(before, key=lambda tensor: np.abs(before[tensor]).max())
    place = np.abs(before[name]).argmax()
    return float(after[name].flat[place] / before[name].flat[place])


@dataclass(frozen=True, slots=True)
class Job:
    """What processes are to observe: handed over, and answered, as files in a folder."""

    recipe: Recipe
    rows: dict[int, TokenisedRow]
    folder: Path


def observe_processes(
    count: int, job: Job, progress: Progress, module: str = "reference.rank", arguments: tuple[str, ...] = ()
) -> Any:
    """What `module` (`observe` in each process) saw in `count` processes under the GPUs' config; it takes the job and `arguments`."""
    (job.folder / JOB).write_bytes(pickle.dumps(job))
    launch([*launcher(count), "-m", module, str(job.folder / JOB), *arguments], progress)
    return pickle.loads((job.folder / OBSERVED).read_bytes())


def launcher(count: int) -> list[str]:
    """`accelerate launch` with the GPUs' config, on this machine and a free port."""
    accelerate = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(CONFIG)]
    return [*accelerate, "--num_processes", str(count), "--main_process_ip", "127.0.0.1", "--main_process_port", "0"]


def child_environment() -> dict[str, str]:
    """Finds this package from anywhere, keeps gloo on this machine, and hides a single GPU, which cannot be several ranks'."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if torch.cuda.device_count() == 1 else {}
    return os.environ | {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"} | hidden


def launch(command: list[str], progress: Progress) -> None:
    """Runs `command`, passes its progress lines on, and raises with its last lines when it fails."""
    lines = []
    with subprocess.Popen(command, env=child_environment(), stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(SPOKEN):
                progress(line.partition("] ")[2].rstrip())
    if process.returncode:
        raise ChildProcessError(f"{' '.join(command)} ended with exit code {process.returncode}:\n{''.join(lines[-40:])}")
