"""Proofs of the recorded pair: as it is, and with its manifests relabelled as those of a GPU and a TPU."""

import json
import shutil
from pathlib import Path

import pytest

from conformance.bench.training.flops import step_flop
from conformance.contract.bundle import EXCHANGE, MANIFEST
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.recipe_writer import write_recipe
from conformance.gate.proof import Files, Proof, prove
from conformance.gate.synthetic import Stage, as_level, as_served

DEVICES = {"reference": "NVIDIA H100 80GB HBM3", "port": "TPU v5p"}


@pytest.fixture(scope="session")
def files(pair, tmp_path_factory) -> Files:
    """The session's pair, as it is given on a command line."""
    recipe = write_recipe(tmp_path_factory.mktemp("gate") / "recipe.toml", pair.recipe)
    return Files(recipe, pair.reference.path, pair.port.path)


@pytest.fixture(scope="session")
def proof(files) -> Proof:
    """On CPUs: L0."""
    return prove(files)


@pytest.fixture(scope="session")
def flop(proof) -> tuple[float, ...]:
    return step_flop(proof.plan)


@pytest.fixture(scope="session")
def relabelled(files, tmp_path_factory) -> Files:
    """Links to the same pair, whose manifests name the claimed devices, digested again: no device has recorded it."""
    folder = tmp_path_factory.mktemp("relabelled")
    paths = {stack: copy_linked(getattr(files, stack), folder / stack) for stack in DEVICES}
    for stack, path in paths.items():
        rewrite(path / MANIFEST, device=DEVICES[stack])
    for stack, path in paths.items():
        _bind_again(path, peer=paths["port" if stack == "reference" else "reference"])
    return Files(files.recipe, paths["reference"], paths["port"])


@pytest.fixture(scope="session")
def claimed(relabelled) -> list[Proof]:
    """Proofs of L1, computed, and of L2, stated: a claimed recipe's size cannot be recorded here."""
    shown = as_served(prove(relabelled))
    return [shown, as_level(shown, "L2")]


@pytest.fixture
def stage(proof, flop, tmp_path) -> Stage:
    """An honest measurement of the pair on CPUs."""
    return Stage(tmp_path, [as_served(proof)], flop)


@pytest.fixture
def claimed_stage(claimed, flop, tmp_path) -> Stage:
    """The same with the claimed devices' names."""
    return Stage(tmp_path, list(claimed), flop)


def copy_linked(bundle: Path, path: Path) -> Path:
    """`path`, in which every file is a link."""
    return Path(shutil.copytree(bundle, path, copy_function=_link))


def _link(source: str, target: str) -> None:
    Path(target).symlink_to(Path(source).resolve())


def rewrite(path: Path, **changes) -> None:
    """A JSON file with other values; a link to somebody else's file is cut first."""
    values = json.loads(path.read_text()) | changes
    path.unlink()
    path.write_text(canonical_json(values))


def _bind_again(path: Path, peer: Path) -> None:
    """Folders that joined the bundle later name the manifest that they joined, or the peer's."""
    if (path / EXCHANGE / MANIFEST).is_file():
        rewrite(path / EXCHANGE / MANIFEST, peer_manifest_sha256=sha256_file(peer / MANIFEST))
    for manifest in path.glob(f"*/{MANIFEST}"):
        if "bundle_manifest_sha256" in json.loads(manifest.read_text()):
            rewrite(manifest, bundle_manifest_sha256=sha256_file(path / MANIFEST))
