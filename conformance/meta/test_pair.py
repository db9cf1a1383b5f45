"""The pair that is compared: swapped and foreign bundles, and bad input to a whole run, are refused in one sentence."""

import pytest

from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.recipe_writer import write_recipe
from conformance.meta.synthetic import write_bundle
from conformance.pair import Pair, check_pair, exchange_problem, is_servable, serve_stacks


@pytest.fixture(scope="module")
def made(tmp_path_factory, recipe, plan) -> Pair:
    """A synthetic pair that no stack recorded."""
    folder = tmp_path_factory.mktemp("made")
    return Pair(recipe, *(write_bundle(folder / stack, stack, recipe, plan) for stack in ("reference", "port")))


def test_a_pair_of_one_recipe_is_taken(made):
    check_pair(made)


def test_swapped_bundles_are_refused(made, recipe):
    with pytest.raises(ContractError, match="recorded by stack 'port', given as the reference"):
        check_pair(Pair(recipe, made.port, made.reference))


@pytest.mark.parametrize(
    ("key", "words"), [("recipe_sha256", "another recipe or other rows"), ("checkpoint_sha256", "two different checkpoints")]
)
def test_a_foreign_bundle_is_refused(made, recipe, plan, tmp_path, key, words):
    other = write_bundle(tmp_path / "other", "port", recipe, plan)
    other.manifest[key] = "0" * 64
    with pytest.raises(ContractError, match=words):
        check_pair(Pair(recipe, made.reference, other))


def test_an_exchange_with_nobody_or_another_is_told(made):
    """What loaded another peer's files, or none, is not compared; the command that would mend it is named."""
    assert "run `parity exchange reference" in exchange_problem(made)


def test_a_pair_without_merges_is_not_served(made):
    """A server needs a merged checkpoint, and what its answers are compared with."""
    assert not is_servable(made.reference)


def test_without_vllm_both_bundles_say_why(tmp_path, recipe, plan, monkeypatch):
    """Each stack's server is a process of its own; one that can't be had is no error."""
    monkeypatch.setenv("PARITY_VLLM_PYTHON", "/no/such/python")
    write_recipe(tmp_path / "recipe.toml", recipe)
    paths = {stack: write_bundle(tmp_path / stack, stack, recipe, plan).path for stack in ("reference", "port")}
    serve_stacks(tmp_path, paths)
    for path in paths.values():
        assert "/no/such/python is no program here" in Bundle(path).not_recorded["serving"]
