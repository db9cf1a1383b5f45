"""Recipes: what is refused, and how the error names it."""

import dataclasses
from pathlib import Path

import pytest

from conformance.contract.errors import ContractError
from conformance.contract.recipe import load_recipe
from conformance.contract.recipe_writer import write_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
TINY = (RECIPES / "tiny.toml").read_text()


def load(tmp_path: Path, text: str):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return load_recipe(path)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipes_load(path):
    """Every recipe that ships with the suite is a valid one."""
    assert load_recipe(path).batch.effective in (4, 8, 16)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rank = 12", "rnak = 12", ("unknown key adapter.rnak", "rank")),
        ("rank = 12", 'rank = "12"', ("adapter.rank = '12'", "str, not int")),
        ("rank = 12", "rank = 0", ("adapter.rank = 0", "above 0")),
        ("rank = 12", "rank = true", ("adapter.rank = True", "bool, not int")),
        ("micro_batch = 2", "", ("batch.micro_batch is missing",)),
        ('order = "shuffle"', 'order = "random"', ("data.order = 'random'", "'file', 'shuffle'")),
        ("clip_norm = 1.0", "clip_norm = -1.0", ("optimizer.clip_norm = -1.0", '"none"')),
        ("dropout = 0.0", "dropout = 1.0", ("adapter.dropout = 1.0", "[0, 1)")),
        ("dropout = 0.0", 'targets = ["q_proj", "qkv"]', ("adapter.targets = ['qkv']", "q_proj")),
        ("learning_rate = 2e-3", "learning_rate = inf", ("optimizer.learning_rate = inf", "finite")),
        ("shards = 1", "shards = 1\n[sharding]\nfsdp = 3", ("sharding.fsdp = 3", "must divide")),
        ("[model]", "[modle]", ("unknown key modle", "model")),
        ("[model]", "[model", ("not TOML",)),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path, old, new, words):
    """The error names the key, the value and what is allowed."""
    assert old in TINY
    with pytest.raises(ContractError) as error:
        load(tmp_path, TINY.replace(old, new, 1))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path):
    """A recipe that is not there is a ContractError that names the path."""
    with pytest.raises(ContractError, match=r"nowhere\.toml: no such file"):
        load_recipe(tmp_path / "nowhere.toml")


def test_the_digest_sees_every_value_but_paths(tmp_path):
    """Two recipes have one digest exactly when they compute the same thing from the same files."""
    recipe = load(tmp_path, TINY)
    moved = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, checkpoint="elsewhere"))
    louder = dataclasses.replace(recipe, adapter=dataclasses.replace(recipe.adapter, alpha=24.1))
    assert moved.digest == recipe.digest != louder.digest


def test_a_written_recipe_reads_back(tmp_path):
    """Writing and reading keeps the digest, and the paths become absolute."""
    recipe = load_recipe(RECIPES / "paper-tpu.toml")
    again = load_recipe(write_recipe(tmp_path / "again.toml", recipe))
    assert again.digest == recipe.digest
    assert again.checkpoint_dir == recipe.checkpoint_dir


def test_no_clipping_is_spelt_none():
    """The paper's TPU recipe does not clip."""
    assert load_recipe(RECIPES / "paper-tpu.toml").optimizer.clip_norm is None
