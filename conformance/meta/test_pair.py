"""The pair that is compared: swapped and foreign bundles, and bad input to a whole run, are refused in one sentence."""

import pytest

from conformance.contract.errors import ContractError
from conformance.meta.synthetic import write_bundle
from conformance.pair import Pair, check_pair


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
