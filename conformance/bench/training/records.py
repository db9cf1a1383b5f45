"""The training benchmark's bundle in dataclasses.

    DIR/manifest.json  recipe.toml
    DIR/launch-1/launch.json  steps.jsonl           one folder a launch, failed and interrupted ones too
"""

from dataclasses import dataclass, field

KIND, VERSION = "training", 1
RECIPE, LAUNCH = "recipe.toml", "launch.json"
OK, FAILED, INTERRUPTED = "ok", "failed", "interrupted"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a measurement is of; every digest is a bundle's of the same name, `code_sha256` the suite's as in a certificate.

    `platform`, `chips`, `stack_code_sha256`, `versions` and `environment` are the first launch's own words, empty before it.
    `launches`: planned; `steps`: of a launch; `warm_up`: so many first steps are in no step time. `files`: path -> sha256 of every
    file of the bundle but this one. `flop`: what each step needs at the least (flops.py). `lock_sha256`: digest of the locked plan
    (gate/lock.py) that it was made for, empty for none.
    """

    version: int
    kind: str
    side: str
    platform: str
    machine: str
    chips: int
    recipe_sha256: str
    plan_sha256: str
    rows_sha256: str
    checkpoint_sha256: dict
    code_sha256: str
    stack_code_sha256: str
    stack: str
    versions: dict
    environment: dict
    started: str
    launches: int
    steps: int
    warm_up: int
    files: dict = field(default_factory=dict)
    flop: tuple[float, ...] = ()
    lock_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a stack. A failed launch is counted and stays; an interrupted one stays too, and another is launched for it.

    `process`: boot id, process id and the process's start time, which no two processes share. `spawned_ns` and `ended_ns` are of the
    clock of the steps. `memory_of`: "HBM", or "RSS" where `peak_memory_bytes` is of the process. `seed`: of dropout.
    """

    number: int
    outcome: str
    reason: str
    process: str
    started: str
    spawned_ns: int
    ended_ns: int
    compile_s: float | None = None
    peak_memory_bytes: int | None = None
    memory_of: str = ""
    seed: int = 0


def folder_name(number: int) -> str:
    return f"launch-{number}"
