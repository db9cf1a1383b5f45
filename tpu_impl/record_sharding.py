"""Records the rung *sharding*: one result on every mesh."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import jax

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_file
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.sharding import MESHES, sharding_recipe
from tpu_impl.abstract import abstract_leaves
from tpu_impl.mesh_processes import PAIR, WIDEST, Job, Lost, lines_in, lose_one
from tpu_impl.mesh_run import ARRAYS
from tpu_impl.session import Session

TOGETHER = 2  # meshes at a time: one keeps a core busy


def record_sharding(session: Session, writer: BundleWriter) -> None:
    if jax.process_index() > 0:
        return  # the meshes' processes are not of this run; the first process starts them
    jax.clear_caches()  # the programs of the rungs before hold a gigabyte, which the meshes' processes need
    folder = session.scratch / "sharding"
    folder.mkdir()
    job = Job(write_recipe(folder / "recipe.toml", sharding_recipe(session.recipe)), folder)
    with ThreadPoolExecutor(TOGETHER) as pool:
        processes = pool.submit(run_processes, job)  # first, because it waits for a lost process while meshes can compute
        meshes = {mesh.name: pool.submit(job.run, mesh) for mesh in MESHES}
        abstract = [(mesh.name, asdict(leaf)) for mesh, leaf in abstract_leaves(session.recipe)]
        for name, running in meshes.items():
            write_mesh(writer, name, running.result())
            session.progress(f"sharding {name}")
        found, lost = processes.result()
    write_mesh(writer, f"processes={PAIR}", found)
    session.progress(f"sharding processes={PAIR}, one lost: exit code {lost.exit_code}, resumed at step {lost.resumed_step}")
    writer.line("sharding", "lost", **asdict(lost))
    for name, leaf in abstract:
        writer.line("sharding", "abstract", mesh=name, **leaf)


def run_processes(job: Job) -> tuple[Path, Lost]:
    """The same devices in two processes; then one of the two is killed, and both start again."""
    found = job.run(WIDEST, processes=PAIR)
    return found, lose_one(job, found)


def write_mesh(writer: BundleWriter, name: str, found: Path) -> None:
    """Puts a mesh's results into the bundle under its name."""
    for tensor, value in read_file(found / "0" / ARRAYS).items():
        writer.array("sharding", f"{name}/{tensor}", value)
    for line in read_lines(found):
        series = line.pop("series")
        meshed = {} if series in ("refusals", "restore") else {"mesh": name}
        writer.line("sharding", series, **meshed, **line)


def read_lines(found: Path) -> Iterator[dict]:
    """The first process's lines; what a step consumed is what all processes consumed."""
    first, *others = (lines_in(folder) for folder in sorted(found.glob("[0-9]")))
    for lines in zip(first, *others, strict=True):
        line = lines[0]
        if line["series"] == "consumed":
            line = line | {name: sum((one[name] for one in lines[1:]), line[name]) for name in ("shard_rows", "tokens", "loss_tokens")}
        yield line
