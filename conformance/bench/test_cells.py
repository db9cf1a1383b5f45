"""The cells of a sweep: read from TOML or refused in one sentence, known by digests, and no prompt twice."""

import dataclasses

import numpy as np
import pytest

from conformance.bench.cells import Cell, digests_of, read_plan
from conformance.bench.options import DEFAULT, TINY
from conformance.bench.synthetic_sweep import CELLS, TOKENS
from conformance.contract.errors import ContractError

RATES = '"open"\nlevels = [1, 2]'
GROUP = '[[groups]]\nmode = "open"\nlevels = [1, 2]\ninput_tokens = [32]\noutput_tokens = 4\nrequests = 8\n'


def written(tmp_path, text):
    path = tmp_path / "cells.toml"
    path.write_text(text)
    return path


def test_the_default_sweep_is_the_published_one():
    """Seven lengths, rates 1 to 64, 1 to 256 under way, bursts; every open loop has enough requests for a p99."""
    plan = read_plan(DEFAULT)
    opened = [cell for cell in plan.cells if cell.mode == "open" and cell.length == "fixed"]
    assert {cell.input_tokens for cell in opened} == {128, 512, 1024, 2048, 4096, 8192, 15360}
    assert {cell.level for cell in opened} == {1, 2, 4, 8, 16, 32, 64}
    assert {cell.level for cell in plan.cells if cell.mode == "closed"} == {1, 4, 16, 64, 128, 256}
    assert {cell.mode for cell in plan.cells} == {"open", "closed", "burst"}
    assert {cell.length for cell in plan.cells} == {"fixed", "natural"}
    assert min(cell.requests for cell in opened) >= 459
    assert max(cell.input_tokens + cell.output_tokens for cell in plan.cells) <= 16_384
    assert read_plan(TINY).cells


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"open"', '"opne"', "groups[0].mode = 'opne' is not one of 'open', 'burst', 'closed'"),
        ("[1, 2]", "[2, 1]", "groups[0].levels = [2.0, 1.0]; allowed: numbers above 0 that rise"),
        ("[1, 2]", "[0]", "groups[0].levels = [0.0]; allowed: numbers above 0 that rise"),
        ("[1, 2]", '["1"]', "groups[0].levels[0] = '1' is str, not float"),
        ("[32]", "[0]", "groups[0].input_tokens = [0]; allowed: lengths of at least 1"),
        ("output_tokens = 4", "output_tokens = 0", "groups[0].output_tokens = 0; allowed: at least 1"),
        ("output_tokens", "output_token", "unknown key groups[0].output_token; allowed: mode, levels"),
        (RATES, '"closed"\nlevels = [1, 9]', "groups[0].requests = 8; allowed: at least as many as are under way, here 9"),
        (RATES, '"burst"\nlevels = [1.5]', "groups[0].levels = [1.5]; allowed: whole numbers: burst counts requests"),
        ("[[groups]]", "[[groups]", "cells"),
    ],
)
def test_bad_toml_is_one_sentence(tmp_path, old, new, words):
    """It names the file, the key, its value and what is allowed."""
    path = written(tmp_path, f"seed = 1\n{GROUP}".replace(old, new))
    with pytest.raises(ContractError) as error:
        read_plan(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cell_is_asked_for_once(tmp_path):
    with pytest.raises(ContractError, match=r"open-1-in32-out4-fixed is asked for twice"):
        read_plan(written(tmp_path, f"seed = 1\n{GROUP}{GROUP}"))


def test_digests_are_those_of_what_is_sent(tmp_path):
    """Read twice they are equal; another seed, one other prompt, schedule or length changes them."""
    plan = read_plan(written(tmp_path, f"seed = 1\n{GROUP}"))
    digests = digests_of(plan, TOKENS)
    assert digests == digests_of(read_plan(written(tmp_path, f"seed = 1\n{GROUP}")), TOKENS)
    assert len(set(digests.values())) == 2
    assert not set(digests.values()) & set(digests_of(read_plan(written(tmp_path, f"seed = 2\n{GROUP}")), TOKENS).values())
    cell = plan.cells[0]
    prompts = cell.prompts(TOKENS)
    other = prompts.copy()
    other[3, 7] += 1
    changed = [dataclasses.replace(cell, **change) for change in ({"length": "natural"}, {"output_tokens": 5}, {"level": 3.0})]
    assert digests[cell.name] not in {cell.digest(other), *(one.digest(prompts) for one in changed)}


def test_no_prompt_is_sent_twice_to_a_server(tmp_path, monkeypatch):
    """Over all cells of a start, warm-ups included; control: a warm-up with a cell's own prompts is refused."""
    plan = read_plan(written(tmp_path, CELLS.replace("LENGTH", "fixed")))
    sent = [row[:16].tobytes() for cell in plan.cells for row in (*cell.prompts(TOKENS), *cell.warm_up(TOKENS, 2).prompts)]
    assert len(set(sent)) == len(sent)
    digests_of(plan, TOKENS)
    monkeypatch.setattr(Cell, "warm_up", lambda cell, tokens, requests: cell.load(tokens))
    with pytest.raises(ContractError, match="a prompt begins as an earlier one does"):
        digests_of(plan, TOKENS)


def test_prompts_are_as_long_as_their_cell(tmp_path):
    for cell in read_plan(written(tmp_path, CELLS.replace("LENGTH", "natural"))).cells:
        load = cell.load(TOKENS)
        assert load.prompts.shape == (cell.requests, cell.input_tokens)
        assert load.fixed_length is (cell.length == "fixed")
        assert np.isin(load.prompts, TOKENS).all()
