"""FSDP2 over several processes: the accelerate config of the GPUs, in effect on CPUs and under torchrun too."""

import os
from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env

from reference.processes import processes

CONFIG = Path(__file__).with_name("fsdp2.yaml")
EXPORTED = ("ACCELERATE_", "FSDP_")


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
