"""The soak's recipes: the same from the same seed, all of them possible, no two alike."""

import pytest

from conformance.checks import checks
from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.recordings import recordings
from conformance.contract.topology import read_topology
from conformance.soak.drawing import STEPS, draw_recipe
from conformance.soak.run import LEFT_OUT, RUNGS, described

DRAWN, LEAST_STEPS = 6, 7  # rows that are too long are dropped


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak")
    return [load_recipe(draw_recipe(folder, 1, index)) for index in range(DRAWN)]


def test_every_recipe_can_be_planned(drawn):
    for recipe in drawn:
        plan = make_plan(recipe)
        assert LEAST_STEPS <= plan.total_steps <= STEPS
        assert len(plan.prompts) == 16


def test_the_checkpoint_has_the_shapes_of_its_config(drawn):
    for recipe in drawn:
        shapes = {name: value.shape for name, value in read_tensors(recipe.checkpoint_dir).items()}
        assert shapes == read_topology(recipe.checkpoint_dir).tensors
        assert len(read_topology(recipe.checkpoint_dir).layers) == 6


def test_a_seed_draws_the_same_again_and_another_seed_others(drawn, tmp_path):
    for folder, seed in (("again", 1), ("other", 2)):
        (tmp_path / folder).mkdir()
        recipe = load_recipe(draw_recipe(tmp_path / folder, seed, 0))
        assert (recipe.digest == drawn[0].digest) is (seed == 1)
        assert (recipe.rows_file.read_bytes() == drawn[0].rows_file.read_bytes()) is (seed == 1)


def test_no_two_recipes_are_alike(drawn):
    assert len({described(recipe) for recipe in drawn}) == DRAWN


def test_what_is_left_out_is_there(drawn):
    """A check that is renamed cannot stay left out by its old name."""
    names = {name for name, (rung, _) in checks().items() if rung in RUNGS}
    assert set(LEFT_OUT) <= names


def test_a_folder_of_recipes_is_a_bundle_each(tmp_path):
    recipes, out = tmp_path / "recipes", tmp_path / "out"
    recipes.mkdir()
    with pytest.raises(ContractError, match=r"no \*\.toml in it"):
        recordings(recipes, out)
    for name in ("b", "a"):
        (recipes / f"{name}.toml").touch()
    assert recordings(recipes, out) == [(recipes / "a.toml", out / "a"), (recipes / "b.toml", out / "b")]
    (out / "a").mkdir()  # recorded before
    assert recordings(recipes, out) == [(recipes / "b.toml", out / "b")]
    assert recordings(recipes / "a.toml", out) == [(recipes / "a.toml", out)]
