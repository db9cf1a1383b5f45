"""Where recorders of planted faults write: one folder a recorder, in it one a fault and a line for each that was refused."""

import json
import shutil
from pathlib import Path

from conformance.contract.errors import ContractError
from conformance.contract.faults import REFUSALS, Fault

RECORDINGS = "recordings"


def recordings_of(out: Path, name: str) -> Path:
    """The folder of a recorder."""
    return out / f"{RECORDINGS}-{name.replace(' ', '-')}"


def folder_of(out: Path, fault: Fault) -> Path:
    """The folder of the recorder that has this fault."""
    found = sorted(path.parent for path in out.glob(f"{RECORDINGS}-*/{fault.id}"))
    if not found:
        raise ContractError(f"{out}: fault {fault.id} was not recorded here")
    return found[0]


def forget(out: Path, faults: tuple[Fault, ...]) -> None:
    """Removes what any recorder has of these faults, and leaves what it has of others."""
    ids = {fault.id for fault in faults}
    for recordings in out.glob(f"{RECORDINGS}-*"):
        for name in ids:
            shutil.rmtree(recordings / name, ignore_errors=True)
        if (refusals := recordings / REFUSALS).is_file():
            lines = refusals.read_text().splitlines(keepends=True)
            refusals.write_text("".join(line for line in lines if json.loads(line)["id"] not in ids))
