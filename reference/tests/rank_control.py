"""What a process of test_sharding.py does: controls as stock accelerate takes them, and what is recorded."""

import os
import pickle
import sys
from collections.abc import Callable
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
from reference.train import ReferenceTrainer, train

CONTROL = "control.pickle"
Change = Callable[[ReferenceTrainer], None]


@dataclass(frozen=True, slots=True)
class Control:
    """Stock accelerate's distributed type on CPUs and whether it sharded a parameter; losses of the warm step; what was exported."""

    kind: str
    sharded: bool
    own_targets_loss: float
    bf16_loss: float
    stock_bf16_loss: float
    exported: dict[str, str]


def observe_control(session: Session) -> Control:
    """First without the way past accelerate's gate, which `rank.main` then opens."""
    exported = {key: value for key, value in os.environ.items() if key.startswith(EXPORTED)}
    own_targets, trainer = one_step(session, "f32", divide_by_own_targets)
    sharded = any(isinstance(value, DTensor) for value in adapter_parameters(trainer.model).values())
    kind = trainer.accelerator.distributed_type.name
    rank.main(Path(sys.argv[1]))
    losses = [one_step(session, "bf16", change)[0] for change in (leave, use_stock_policy)]
    return Control(kind, sharded, own_targets, *losses, exported)


def one_step(session: Session, precision: str, change: Change) -> tuple[float, ReferenceTrainer]:
    """The warm step's loss, by a trainer that `change` changed."""
    trainer = session.trainer(session.warm.adapter, sharding_run(session, 1, precision), dropout=0.0)
    change(trainer)
    recorder = Recorder(None, session.recipe, plan=session.plan).attach(trainer)
    train(trainer, precision)
    return recorder.steps[0].loss, trainer


def leave(trainer: ReferenceTrainer) -> None:
    pass


def divide_by_own_targets(trainer: ReferenceTrainer) -> None:
    trainer.args.average_tokens_across_devices = False


def use_stock_policy(trainer: ReferenceTrainer) -> None:
    trainer.accelerator.state.fsdp_plugin.set_mixed_precision("bf16", override=True)


def main(file: Path) -> None:
    prepare_process()
    job: Job = pickle.loads(file.read_bytes())
    with Session(job.recipe, say) as session:
        session.rows = job.rows
        control = observe_control(session)
    if process_index() == 0:
        (job.folder / CONTROL).write_bytes(pickle.dumps(control))


if __name__ == "__main__":
    from reference.tests import rank_control  # so that what is pickled is of a module that the test knows

    rank_control.main(Path(sys.argv[1]))
