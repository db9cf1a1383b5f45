"""Real input: VerilogEval's problems and references as rows, tokenised by both stacks' own paths."""

import dataclasses
import json
from pathlib import Path

import pytest

from conformance import test_tokens
from conformance.checks import run_check
from conformance.contract.bundle import Bundle
from conformance.contract.plan import make_plan
from conformance.contract.recipe_writer import write_recipe
from conformance.findings import Verdict
from conformance.pair import record_stacks

PROBLEMS = Path(__file__).parents[3] / "shared" / "verilog-eval" / "dataset_spec-to-rtl"


@pytest.fixture(scope="module")
def real(recipe, tmp_path_factory):
    """(plan, reference, port) of the 156 problems: prompt and reference as a pair."""
    if not PROBLEMS.is_dir():
        pytest.skip(f"VerilogEval's problems are not at {PROBLEMS}")
    folder = tmp_path_factory.mktemp("verilog-eval")
    rows = [
        {"prompt": prompt.read_text(), "response": prompt.with_name(prompt.name.replace("_prompt.txt", "_ref.sv")).read_text()}
        for prompt in sorted(PROBLEMS.glob("*_prompt.txt"))
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, rows=str(folder / "rows.jsonl")))
    file = write_recipe(folder / "recipe.toml", recipe)
    stacks = ("reference", "port")
    record_stacks(file, {s: folder / s for s in stacks}, ("tokens",))
    return make_plan(recipe), *(Bundle(folder / stack) for stack in stacks)


def test_every_problem_is_a_row_or_has_a_reason(real):
    """156 problems: each is kept, or dropped with its token count."""
    plan = real[0]
    assert len(plan.rows) + len(plan.dropped) == 156
    assert len(plan.rows) > 100
    assert all("over 1024" in reason for _, reason in plan.dropped)


@pytest.mark.parametrize(
    "check",
    [
        test_tokens.test_the_same_rows_are_kept,
        test_tokens.test_token_ids_are_equal,
        test_tokens.test_loss_masks_are_equal,
        test_tokens.test_every_row_starts_with_its_only_bos,
    ],
    ids=lambda check: check.__name__,
)
def test_real_rows_hold(real, check, recipe, limits):
    """The checks of the tokens rung pass on real rows as they do on the fixture's."""
    plan, reference, port = real
    finding = run_check("tokens", check, reference, port, plan=plan, recipe=recipe, limits=limits)
    assert finding.verdict is Verdict.PASS, finding
