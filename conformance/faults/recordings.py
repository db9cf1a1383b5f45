"""Where recorders of planted faults write: one folder a recorder, in it one a fault and a line for each that was refused."""

import json
import shutil
from pathlib import Path

from conformance.contract.faults import REFUSALS, Fault

RECORDINGS = "recordings"


def recordings_of(out: Path, name: str) -> Path:
    return out / f"{RECORDINGS}-{name.replace(' ', '-')}"


def forget(recordings: Path, faults: tuple[Fault, ...]) -> None:
    """Removes what was recorded of these faults, and leaves that of others."""
    for fault in faults:
        shutil.rmtree(recordings / fault.id, ignore_errors=True)
    if (refusals := recordings / REFUSALS).is_file():
        ids = {fault.id for fault in faults}
        refusals.write_text("".join(line for line in refusals.read_text().splitlines(True) if json.loads(line)["id"] not in ids))
