"""Writes the training benchmark's bundle, launch by launch: each is written beside and renamed, and the manifest after it."""

import os
import platform
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import conformance
from conformance.bench.bundle_files import MANIFEST, digests_below, files_of, read_json
from conformance.bench.training.flops import step_flop
from conformance.bench.training.measurements import TrainingMeasurements, read_manifest, read_steps
from conformance.bench.training.records import INTERRUPTED, KIND, LAUNCH, RECIPE, VERSION, Launch, Manifest, folder_name
from conformance.children import ENVIRONMENT
from conformance.contract.digest import canonical_json, sha256_file, sha256_tree
from conformance.contract.errors import ContractError
from conformance.contract.plan import Plan
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.timed_steps import STACK, STEPS, StackFacts, now_ns
from conformance.contract.toml_records import read_record
from conformance.contract.whole_text import write_text

VARIABLES = (
    "OMP_NUM_THREADS", "XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", "CUDA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF", "NCCL_ALGO", "NCCL_PROTO",
)  # fmt: skip
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_TIME = 19  # of the fields behind the command's name in /proc/PID/stat (proc(5): field 22)
GROWS = ("launches",)  # what the same command may ask more of


class TrainingFolder(TrainingMeasurements):
    """A bundle that grows by launches. One that was under way when its launcher died is taken in as interrupted."""

    @classmethod
    def begin(cls, path: Path, wanted: Manifest, plan: Plan) -> "TrainingFolder":
        """A new folder, or that of the same measurement, to go on with."""
        path = Path(path)
        if not (path / MANIFEST).is_file():
            if path.exists() and any(path.iterdir()):
                raise ContractError(f"--out {path}: neither empty nor a training measurement; choose a new folder")
            path.mkdir(parents=True, exist_ok=True)
            write_recipe(path / RECIPE, plan.recipe)
            _write(path / MANIFEST, replace(wanted, files=digests_below(path, path / RECIPE)))
        known = read_manifest(path)
        differing = [name for name in _identity(wanted) if getattr(known, name) != getattr(wanted, name)]
        if differing:
            raise ContractError(
                f"--out {path}: a measurement with another {differing[0]} ({getattr(known, differing[0])!r}, not "
                f"{getattr(wanted, differing[0])!r}); choose a new folder"
            )
        _remove_unlisted(path, known)
        folder = cls(path)
        folder._take_in_the_lost()
        if wanted.launches > known.launches:
            folder._save(launches=wanted.launches)
        return folder

    @property
    def next_number(self) -> int:
        return 1 + max((launch.number for launch in self.launches), default=0)

    def partial(self, number: int) -> Path:
        """Where a launch writes while it is under way."""
        return self.path / f".{folder_name(number)}.partial"

    def open(self, launch: Launch) -> Path:
        """Notes that a launch is under way, so that it is not lost whatever ends this process."""
        folder = self.partial(launch.number)
        folder.mkdir(exist_ok=True)
        _write(folder / LAUNCH, launch)
        return folder

    def add(self, launch: Launch, facts: StackFacts | None = None) -> None:
        """What the launch has left in its partial folder becomes part of the bundle; the first one's facts describe it."""
        partial, target = self.partial(launch.number), self.path / folder_name(launch.number)
        _write(partial / LAUNCH, launch)
        (partial / STEPS).touch()
        if facts and not self.manifest.stack_code_sha256:
            self._save(**described(facts))
        for path in partial.iterdir():  # a stack may leave what it likes, such as a profile
            if path.name not in (LAUNCH, STEPS):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        partial.rename(target)
        self._save(files=self.manifest.files | digests_below(self.path, *files_of(target)))

    def problem_of(self, facts: StackFacts) -> str:
        """How a launch differs from the first one, by its own words; empty: not at all."""
        now = described(facts)
        known = self.manifest
        differing = [name for name in now if getattr(known, name) != now[name]] if known.stack_code_sha256 else []
        return f"{differing[0]} is {now[differing[0]]!r}, in the first launch {getattr(known, differing[0])!r}" if differing else ""

    def _take_in_the_lost(self) -> None:
        for partial in sorted(self.path.glob(".launch-*.partial")):
            if not (partial / LAUNCH).is_file():
                shutil.rmtree(partial)
                continue
            launch = read_record(Launch, read_json(partial / LAUNCH), where=str(partial / LAUNCH))
            if launch.process and process_identity(launch.process.split("/")[1]) == launch.process:
                raise ContractError(f"{self.path}: launch {launch.number} is still running as process {launch.process.split('/')[1]}")
            steps = read_steps(partial / STEPS)
            lasted_ns = steps[-1].end_ns if steps else launch.spawned_ns
            self.add(replace(launch, ended_ns=max(launch.ended_ns, lasted_ns)))

    def _save(self, **changes) -> None:
        self.manifest = replace(self.manifest, **changes)
        self.__dict__.pop("launches", None)  # read anew
        _write(self.path / MANIFEST, self.manifest)


def new_manifest(
    plan: Plan, *, side: str, stack: str, machine: str, launches: int, steps: int, warm_up: int, lock_sha256: str = ""
) -> Manifest:
    """Of a measurement that has not begun; `started` is now."""
    checkpoint = {path.name: sha256_file(path) for path in sorted(plan.recipe.checkpoint_dir.glob("*.safetensors"))}
    return Manifest(
        VERSION, KIND, side, platform="", machine=machine, chips=0, recipe_sha256=plan.recipe.digest, plan_sha256=plan.digest,
        rows_sha256=plan.row_digest, checkpoint_sha256=checkpoint, code_sha256=sha256_tree(Path(conformance.__file__).parent),
        stack_code_sha256="", stack=stack, versions={}, environment={}, started=now(), launches=launches, steps=steps,
        warm_up=warm_up, flop=step_flop(plan)[:steps], lock_sha256=lock_sha256,
    )  # fmt: skip


def described(facts: StackFacts) -> dict:
    """The manifest's fields that a stack says of itself."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "cpus": os.cpu_count()}
    variables = {name: value for name, value in (ENVIRONMENT | os.environ).items() if name in VARIABLES}
    environment = facts.environment | {"device": facts.device, "machine": machine, "variables": variables}
    return {
        "platform": facts.platform, "chips": facts.chips, "stack_code_sha256": facts.code_sha256, "versions": facts.versions,
        "environment": environment,
    }  # fmt: skip


def read_facts(folder: Path) -> StackFacts | None:
    """None where a launch ended before it had said them."""
    path = folder / STACK
    return read_record(StackFacts, read_json(path), where=str(path)) if path.is_file() else None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def under_way(number: int, seed: int) -> Launch:
    """As a launch stands until it has ended, should nobody be left to say more of it."""
    spawned_ns = now_ns()
    return Launch(number, INTERRUPTED, "its launcher was ended", "", now(), spawned_ns, spawned_ns, seed=seed)


def process_identity(pid: int | str) -> str:
    """Boot id, process id and start time in clock ticks, which no two processes share; empty: no such process."""
    try:
        boot, status = BOOT_ID.read_text().strip(), Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return ""
    return f"{boot}/{pid}/{status.rpartition(')')[2].split()[START_TIME]}"


def _identity(manifest: Manifest) -> list[str]:
    """What a measurement is known by, before any launch of it."""
    said = ("platform", "chips", "stack_code_sha256", "versions", "environment", "started", "files", *GROWS)
    return [name for name in asdict(manifest) if name not in said]


def _remove_unlisted(path: Path, manifest: Manifest) -> None:
    """A launch that was renamed but is not yet in the manifest goes back to where it was."""
    for folder in path.glob("launch-*"):
        if f"{folder.name}/{LAUNCH}" not in manifest.files:
            folder.rename(folder.with_name(f".{folder.name}.partial"))


def _write(path: Path, record) -> None:
    write_text(path, canonical_json(asdict(record)))
