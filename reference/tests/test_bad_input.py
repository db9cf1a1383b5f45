"""Bad input to the recorder: one sentence, exit code 2, and nothing written."""

import re
from pathlib import Path

import pytest

from conformance.contract.recipe import load_recipe
from fixtures.bad_input import BAD_INPUT, write_bad_recipe
from reference.__main__ import main

TINY = Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml"


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(case, tmp_path, capsys):
    recipe, pattern = write_bad_recipe(case, load_recipe(TINY), tmp_path)
    out = tmp_path / "bundle"
    assert main(["record", "--recipe", str(recipe), "--out", str(out), "--rungs", "tokens,weights"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("reference: ") and re.search(pattern, message), message
    assert list(tmp_path.glob("*bundle*")) == []


def test_a_bundle_of_another_recipe_is_refused(tmp_path, capsys):
    """The exchange loads a peer's files only when the peer ran the same recipe."""
    for name, rate in (("ours", "2e-3"), ("theirs", "3e-3")):
        text = TINY.read_text().replace("../../fixtures", str(TINY.parents[2] / "fixtures")).replace("2e-3", rate)
        (tmp_path / f"{name}.toml").write_text(text)
        options = ["--recipe", str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / name), "--rungs", "tokens"]
        assert main(["record", *options]) == 0
    before = sorted(path.name for path in (tmp_path / "ours").rglob("*"))
    assert main(["exchange", "--bundle", str(tmp_path / "ours"), "--peer", str(tmp_path / "theirs")]) == 2
    assert "theirs is of recipe" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "ours").rglob("*")) == before
