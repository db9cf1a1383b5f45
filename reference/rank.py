"""One of the processes that record the *sharding* rung together: `accelerate launch … -m reference.rank JOB`."""

import pickle
import sys
from pathlib import Path

from reference.environment import prepare_process
from reference.processes import process_index, processes
from reference.record import say
from reference.session import Session
from reference.sharding import OBSERVED, Job, observe, use_sharding


def main(file: Path) -> None:
    """Observes, and lets the first process write what was seen."""
    prepare_process()
    use_sharding()
    job: Job = pickle.loads(file.read_bytes())
    with Session(job.recipe, say) as session:
        session.rows = job.rows
        observed = observe(session, f"ranks={processes()}")
    if process_index() == 0:
        (job.folder / OBSERVED).write_bytes(pickle.dumps(observed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
