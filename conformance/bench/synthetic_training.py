"""Training measurements made by hand, without a stack: every step takes a stated time. For tests."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from conformance.bench.bundle_files import MANIFEST, digests_below, files_of
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import KIND, LAUNCH, OK, RECIPE, VERSION, Launch, Manifest, folder_name
from conformance.contract.digest import canonical_json
from conformance.contract.plan import Plan
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.timed_steps import STEPS, TimedStep, planned_step
from conformance.contract.whole_text import write_text

MS, ORIGIN_NS = 1_000_000, 10**12
CHECKPOINT = {"model.safetensors": "0" * 64}
PER_LAUNCH_S = 3600  # between the starts of two launches


@dataclass(frozen=True, slots=True)
class Scene:
    """A side's bundle. `step_ms`: of every step after the first, one a launch; the first takes `first_ms` longer, and begins `setup_ms`
    after its process.

    `losses`, `gradient_norms`: one a step, else they fall; `planned`: launches, else as many as there are. `change_*`: what else
    becomes of a record before it is written.
    """

    side: str = "port"
    step_ms: tuple[float, ...] = (100.0, 101.0, 99.0, 100.5, 99.5)
    first_ms: float = 2000.0
    setup_ms: float = 5000.0
    steps: int | None = None
    warm_up: int = 3
    losses: tuple[float, ...] | None = None
    gradient_norms: tuple[float, ...] | None = None
    planned: int | None = None
    platform: str = "tpu"
    machine: str = "v5p-8"
    chips: int = 4
    checkpoint_sha256: dict | None = None
    code_sha256: str = "c" * 64
    started: str = "2026-11-30T00:00:00+00:00"
    change_manifest: Callable[[Manifest], Manifest] = lambda manifest: manifest
    change_launch: Callable[[Launch], Launch] = lambda launch: launch
    change_step: Callable[[int, TimedStep], TimedStep] = lambda number, step: step


def write_training(path: Path, plan: Plan, scene: Scene = Scene()) -> TrainingMeasurements:
    """A whole bundle of the plan's recipe in which every check passes, but for what the scene says."""
    path = Path(path)
    path.mkdir(parents=True)
    write_recipe(path / RECIPE, plan.recipe)
    for number, step_ms in enumerate(scene.step_ms, 1):
        _write_launch(path, number, _steps(plan, scene, number, step_ms), scene)
    write_manifest(path, scene.change_manifest(_manifest(plan, scene)))
    return TrainingMeasurements(path)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """With the digests of what lies there."""
    files = digests_below(path, *files_of(path))
    write_text(path / MANIFEST, canonical_json(asdict(replace(manifest, files=files))))


def _write_launch(path: Path, number: int, steps: list[TimedStep], scene: Scene) -> None:
    end_ns = steps[-1].end_ns + round(scene.setup_ms * MS)
    spawned_ns = steps[0].start_ns - round(scene.setup_ms * MS)
    launch = Launch(
        number, OK, "", f"boot/{1000 + number}/{number}", scene.started, spawned_ns, end_ns, compile_s=1.5,
        peak_memory_bytes=2**30, memory_of="RSS" if scene.platform == "cpu" else "HBM",
    )  # fmt: skip
    launch = scene.change_launch(launch)
    folder = path / folder_name(launch.number)
    folder.mkdir()
    (folder / LAUNCH).write_text(canonical_json(asdict(launch)))
    (folder / STEPS).write_text("".join(canonical_json(asdict(step)) + "\n" for step in steps))


def _steps(plan: Plan, scene: Scene, number: int, step_ms: float) -> list[TimedStep]:
    planned = plan.steps[: scene.steps]
    falling = 4.0 * np.exp(-np.arange(len(planned)) / len(planned))
    losses, norms, rates = scene.losses or falling, scene.gradient_norms or falling, plan.learning_rates.astype(np.float32)
    end_ns, found = ORIGIN_NS + number * PER_LAUNCH_S * 10**9 + round(scene.setup_ms * MS), []
    for i, step in enumerate(planned):
        start_ns, end_ns = end_ns, end_ns + round((step_ms + (0 if i else scene.first_ms)) * MS)
        about, figures = planned_step(plan, step), (float(losses[i]), float(norms[i]), float(rates[i]))
        whole = TimedStep(i, start_ns, end_ns, *figures, padded_tokens=plan.width * plan.recipe.batch.effective, **about)
        found.append(scene.change_step(number, whole))
    return found


def _manifest(plan: Plan, scene: Scene) -> Manifest:
    stack = {"port": "tpu_impl", "reference": "reference"}[scene.side]
    return Manifest(
        VERSION, KIND, scene.side, scene.platform, scene.machine, scene.chips, plan.recipe.digest, plan.digest, plan.row_digest,
        scene.checkpoint_sha256 or CHECKPOINT, scene.code_sha256, "d" * 64, stack, {"numpy": "1"}, {"matmul_precision": "highest"},
        scene.started, scene.planned or len(scene.step_ms), len(plan.steps[: scene.steps]), scene.warm_up,
    )  # fmt: skip
