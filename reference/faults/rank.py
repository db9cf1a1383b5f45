"""One of several processes that record under a fault: `accelerate launch … -m reference.faults.rank JOB ID`."""

import sys
from pathlib import Path

from conformance.contract.faults import chosen, read_faults
from reference import rank
from reference.faults.plants import planted


def main(file: Path, fault: str) -> None:
    (found,) = chosen(read_faults(), (fault,))
    with planted(found):
        rank.main(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
