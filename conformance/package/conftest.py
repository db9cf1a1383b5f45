"""One package of the session's pair with everything measured; tests change copies of it."""

import shutil
from pathlib import Path

import pytest

from conformance.contract.progress import silent
from conformance.gate.conftest import files, proof  # noqa: F401  (fixtures)
from conformance.package.build import build
from conformance.package.synthetic import write_scene


@pytest.fixture(scope="session")
def scene(files, proof, tmp_path_factory):  # noqa: F811
    """(what the gate is given, the claims file)"""
    return write_scene(tmp_path_factory.mktemp("scene"), files, proof)


@pytest.fixture(scope="session")
def packed(scene, tmp_path_factory) -> Path:
    """Whole; nobody writes into it."""
    folder = tmp_path_factory.mktemp("packed") / "package"
    build(folder, *scene, silent)
    return folder


@pytest.fixture
def package(packed, tmp_path) -> Path:
    """A copy to change; its files are links, and `write` cuts one before it changes it."""
    return Path(shutil.copytree(packed, tmp_path / "package", copy_function=_link))


def write(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
