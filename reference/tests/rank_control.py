"""What a process of test_sharding.py does: the control, as stock accelerate takes it on CPUs, and then what is recorded."""

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.tensor import DTensor

from reference import rank
from reference.adapter import adapter_parameters
from reference.environment import prepare_process
from reference.processes import process_index
from reference.record import say
from reference.recorder import Recorder
from reference.session import Session
from reference.sharding import EXPORTED, Job, sharding_run
from reference.train import train

CONTROL = "control.pickle"


@dataclass(frozen=True, slots=True)
class Control:
    """The warm step's loss, whether a parameter is sharded, accelerate's distributed type, and what its launcher exported."""

    loss: float
    sharded: bool
    kind: str
    exported: dict[str, str]


def observe_control(job: Job) -> Control:
    """The warm step without the way past accelerate's gate, each process dividing by its own targets."""
    with Session(job.recipe, say) as session:
        session.rows = job.rows
        trainer = session.trainer(session.warm.adapter, sharding_run(session, steps=1), dropout=0.0)
        trainer.args.average_tokens_across_devices = False
        recorder = Recorder(None, job.recipe, plan=session.plan).attach(trainer)
        train(trainer)
    sharded = any(isinstance(value, DTensor) for value in adapter_parameters(trainer.model).values())
    exported = {key: value for key, value in os.environ.items() if key.startswith(EXPORTED)}
    return Control(recorder.steps[0].loss, sharded, trainer.accelerator.distributed_type.name, exported)


def main(file: Path) -> None:
    prepare_process()
    job = pickle.loads(file.read_bytes())
    control = observe_control(job)
    if process_index() == 0:
        (job.folder / CONTROL).write_bytes(pickle.dumps(control))
    rank.main(file)


if __name__ == "__main__":
    from reference.tests import rank_control  # so that what is pickled is of a module that the test knows

    rank_control.main(Path(sys.argv[1]))
