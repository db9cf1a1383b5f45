"""Reads the training benchmark's bundle: whole, or refused."""

import re
from functools import cache, cached_property
from pathlib import Path

from conformance.bench import bundle_files
from conformance.bench.bundle_files import check_files, parsed, read_json
from conformance.bench.training.records import FAILED, INTERRUPTED, KIND, LAUNCH, OK, RECIPE, VERSION, Launch, Manifest, folder_name
from conformance.contract.errors import ContractError
from conformance.contract.recipe import Recipe, load_recipe
from conformance.contract.timed_steps import STEPS, TimedStep
from conformance.contract.toml_records import read_record

OUTCOMES = (OK, FAILED, INTERRUPTED)


class TrainingMeasurements:
    """An open bundle: digests checked, steps read when asked for. What its numbers are worth, checks.py says."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        check_files(self.path, self.manifest.files)

    @cached_property
    def recipe(self) -> Recipe:
        return load_recipe(self.path / RECIPE)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """All of them, by number; a gap in the numbers is for the checks."""
        names = (re.fullmatch(rf"launch-([0-9]+)/{re.escape(LAUNCH)}", name) for name in self.manifest.files)
        return tuple(self._launch(number) for number in sorted(int(name[1]) for name in names if name))

    @property
    def whole(self) -> tuple[Launch, ...]:
        """Those that every figure is taken over."""
        return tuple(launch for launch in self.launches if launch.outcome == OK)

    @property
    def left(self) -> int:
        """How many are still to be launched: an interrupted one is launched again under the next number, a failed one is not."""
        done = sum(launch.outcome != INTERRUPTED for launch in self.launches)
        return max(0, self.manifest.launches - done)

    @cache  # noqa: B019  # a bundle lives as long as what reads it
    def steps(self, number: int) -> tuple[TimedStep, ...]:
        """Of launch `number`, in the file's order."""
        path = self.path / folder_name(number) / STEPS
        return read_steps(path)

    def _launch(self, number: int) -> Launch:
        path = self.path / folder_name(number) / LAUNCH
        launch = read_record(Launch, read_json(path), where=str(path))
        if launch.number != number or launch.outcome not in OUTCOMES:
            value = f"number {launch.number}, outcome {launch.outcome!r}"
            raise ContractError(f"{path}: {value}: the number is the folder's, the outcome one of {', '.join(OUTCOMES)}")
        return launch


def read_manifest(path: Path) -> Manifest:
    manifest = bundle_files.read_manifest(path, Manifest, VERSION)
    if manifest.kind != KIND:
        raise ContractError(f"measurements {path}: kind {manifest.kind!r}; here it is {KIND!r}")
    return manifest


def read_steps(path: Path) -> tuple[TimedStep, ...]:
    """Every whole line; a launch that was stopped may have none, or end in the middle of one."""
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []
    return tuple(read_record(TimedStep, parsed(line, f"{path}:{i}"), where=f"{path}:{i}") for i, line in enumerate(lines, 1))
