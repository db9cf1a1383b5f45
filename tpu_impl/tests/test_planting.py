"""The recorder that plants one after the other for the peers, which read more than the catalogue says that a fault changes."""

import jax
import numpy as np
import pytest

from conformance.contract.bundle import Bundle
from conformance.contract.recipe import load_recipe
from fixtures.two_layers import cut
from tpu_impl.environment import compilation_cache, prepare_process
from tpu_impl.faults.serving import Server
from tpu_impl.tests.conftest import TINY

LOGITS = "logits f32 warm"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that has seen no plant yet: models are made when they are asked for."""
    prepare_process()
    with Server(cut(load_recipe(TINY), tmp_path_factory.mktemp("checkpoint"))) as server:
        yield server


def logits(server: Server, plant: str, folder) -> np.ndarray:
    assert server.answer({"plant": plant, "whole": True}) == {}
    assert server.answer({"record": [LOGITS], "to": str(folder)}) == {}
    server.answer({"remove": True})
    return Bundle(folder).array("logits", "f32/warm/logits")


def test_a_model_that_was_changed_is_seen_and_forgotten(server, tmp_path):
    """The ladder reads a wrong scale off an adapter before it needs a model of it. Control: under a fault that changes no model the
    logits are the same, whatever was planted before."""
    wrong = logits(server, "raw-alpha", tmp_path / "wrong")
    clean, again = (logits(server, fault, tmp_path / fault) for fault in ("bos-twice", "clip-per-tensor"))
    assert np.array_equal(clean, again)
    assert np.abs(wrong - clean).max() > 1e-2


def test_a_session_leaves_the_one_around_it_its_programs(monkeypatch):
    """The folder of the inner one is gone: what compiles next would write there. Control: inside they differ."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    with compilation_cache():
        ours = jax.config.jax_compilation_cache_dir
        with compilation_cache():
            assert jax.config.jax_compilation_cache_dir != ours
        assert jax.config.jax_compilation_cache_dir == ours
