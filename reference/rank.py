"""One of the processes that record the *sharding* rung together: `accelerate launch … -m reference.rank FOLDER`."""

import pickle
import sys
from pathlib import Path

from reference.environment import prepare_process
from reference.processes import process_index, processes
from reference.record import say
from reference.session import Session
from reference.sharding import JOB, OBSERVED, observe, use_sharding


def main(folder: Path) -> None:
    """Takes recipe and rows from the folder, observes, and lets the first process write what was seen."""
    prepare_process()
    use_sharding()
    recipe, rows = pickle.loads((folder / JOB).read_bytes())
    with Session(recipe, say) as session:
        session.rows = rows
        observed = observe(session, f"ranks={processes()}")
    if process_index() == 0:
        (folder / OBSERVED).write_bytes(pickle.dumps(observed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
