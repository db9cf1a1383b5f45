"""One session on the tiny recipe, shared: an adapted model compiles once per precision and dropout."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.contract.recipe import load_recipe
from tpu_impl.environment import prepare_process
from tpu_impl.session import Session

TINY = Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml"


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    prepare_process()
    with Session(load_recipe(TINY), lambda line: None) as session:
        yield session
