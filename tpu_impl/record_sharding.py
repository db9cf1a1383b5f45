"""Records the rung *sharding*: one result on every mesh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from conformance.contract.bundle import BundleWriter
from conformance.contract.checkpoint_files import read_file
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.sharding import MESHES, Mesh, sharding_recipe
from tpu_impl.abstract import abstract_leaves
from tpu_impl.mesh_run import ARRAYS, LINES
from tpu_impl.session import Session

DEVICES = 8  # of the largest mesh; this process has one
TOGETHER = 2  # processes at a time: a mesh's run keeps one core busy
FORCED = "--xla_force_host_platform_device_count"


class LostRun(RuntimeError):
    """A mesh's process ended without a result; the end of what it said on stderr."""


def record_sharding(session: Session, writer: BundleWriter) -> None:
    folder = session.scratch / "sharding"
    folder.mkdir()
    recipe = write_recipe(folder / "recipe.toml", sharding_recipe(session.recipe))
    with ThreadPoolExecutor(TOGETHER) as pool:
        for mesh, found in zip(MESHES, pool.map(lambda mesh: run_apart(recipe, mesh, folder), MESHES), strict=True):
            write_mesh(writer, mesh.name, found)
            session.progress(f"sharding {mesh.name}")
    for mesh, leaf in abstract_leaves(session.recipe):
        writer.line("sharding", "abstract", mesh=mesh.name, **asdict(leaf))


def run_apart(recipe: Path, mesh: Mesh, folder: Path) -> Path:
    """Runs a mesh in a process with 8 devices and returns the folder of its results."""
    out = folder / mesh.name
    out.mkdir()
    sizes = [str(size) for size in (mesh.fsdp, mesh.tp, mesh.data)]
    command = [sys.executable, "-m", "tpu_impl.mesh_run", str(recipe), *sizes, str(out)]
    ended = subprocess.run(command, env=with_devices(DEVICES), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode:
        raise LostRun(f"mesh {mesh.name}: its process ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return out


def with_devices(count: int) -> dict[str, str]:
    """This process's environment with so many CPU devices. First, because XLA reads no flag after a word that is none."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FORCED)]
    return os.environ | {"XLA_FLAGS": " ".join([f"{FORCED}={count}", *flags]), "JAX_PLATFORMS": "cpu"}


def write_mesh(writer: BundleWriter, name: str, found: Path) -> None:
    """Puts a mesh's results into the bundle under its name."""
    for tensor, value in read_file(found / ARRAYS).items():
        writer.array("sharding", f"{name}/{tensor}", value)
    for line in read_lines(found):
        series = line.pop("series")
        meshed = {} if series in ("refusals", "restore") else {"mesh": name}
        writer.line("sharding", series, **meshed, **line)


def read_lines(found: Path) -> Iterator[dict]:
    return map(json.loads, (found / LINES).read_text().splitlines())
