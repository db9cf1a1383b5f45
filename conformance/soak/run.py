"""Draws recipes, records both stacks, one process each, and judges every pair: every verdict must be PASS."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.checks import checks, needs_exchange
from conformance.children import ENVIRONMENT, run_all, stack_child
from conformance.contract.bundle import Bundle
from conformance.contract.recipe import Recipe, load_recipe
from conformance.faults.grounds import fixtures
from conformance.faults.judging import judged
from conformance.findings import Finding, Verdict
from conformance.pair import MODULES, Pair, check_pair
from conformance.soak.drawing import draw_recipe
from conformance.summary import ALL_PASS, CHECK_FAILED

RUNGS = ("tokens", "batches", "weights", "adapters", "logits", "gradients", "optimizer", "one_step", "trajectory", "merge")
# Checks that ask something of a recipe that most drawn ones are not.
LEFT_OUT = {
    "test_training_learns": "ten steps of an untrained model",
    "test_runs_with_dropout_are_equivalent": "statistical: its margins are of 51 steps of the trained model",
    "test_the_statistics_see_another_learning_rate": "statistical",
    "test_the_port_does_not_converge_faster": "statistical",
    "test_dropout_is_on_and_seeds_matter": "no runs with dropout",
}
RESULTS = "soak.jsonl"
# Half of the port's time is LLVM's, for programs that run a few times each.
XLA_FLAGS = f"--xla_backend_optimization_level=0 {ENVIRONMENT['XLA_FLAGS']}"


@dataclass(frozen=True, slots=True)
class Result:
    """A recipe's findings."""

    name: str
    recipe: Recipe
    findings: list[Finding]

    @property
    def alarms(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is not Verdict.PASS]

    @property
    def nearest(self) -> Finding:
        """The finding that used most of its limit."""
        return max(self.findings, key=lambda finding: finding.used_percent or 0)


def run(out: Path, seed: int, count: int) -> int:
    recipes = out / "recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        if not (recipes / f"{index:02}.toml").exists():
            draw_recipe(recipes, seed, index)
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
    run_all(stack_child(stack, [MODULES[stack], *_record(recipes, out / stack)]) for stack in MODULES)
    results = list(judge_all(out))
    (out / RESULTS).write_text("".join(json.dumps(line) + "\n" for result in results for line in _lines(result)))
    print_results(results)
    return CHECK_FAILED if any(result.alarms for result in results) else ALL_PASS


def _record(recipes: Path, out: Path) -> list[str]:
    return ["record", "--recipe", str(recipes), "--out", str(out), "--rungs", ",".join(RUNGS)]


def judge_all(out: Path) -> Iterator[Result]:
    """Every recipe of OUT/recipes that both stacks have recorded."""
    for path in sorted((out / "recipes").glob("*.toml")):
        pair = Pair(load_recipe(path), *(Bundle(out / stack / path.stem) for stack in ("reference", "port")))
        check_pair(pair)
        yield Result(path.stem, pair.recipe, list(judge_pair(pair)))


def judge_pair(pair: Pair) -> Iterator[Finding]:
    given = fixtures(pair)
    for rung, check in checks().values():
        if rung in RUNGS and check.__name__ not in LEFT_OUT and not needs_exchange(check):
            yield judged(rung, check, pair.reference, pair.port, given)


def _lines(result: Result) -> Iterator[dict]:
    for finding in result.findings:
        yield {
            "recipe": result.name, "rung": finding.rung, "check": finding.check, "verdict": finding.verdict,
            "used_percent": finding.used_percent, "where": finding.where, "reason": finding.reason,
        }  # fmt: skip


def print_results(results: list[Result]) -> None:
    table = Table("recipe", "model", "batch", "adapter", "verdict", "most of a limit", "where", box=None, header_style="bold")
    for result in results:
        near, alarms = result.nearest, result.alarms
        shown = alarms[0] if alarms else near
        table.add_row(
            result.name, *described(result.recipe), f"{len(alarms)} alarms" if alarms else "PASS",
            f"{shown.rung}/{shown.check} {shown.used_percent or 0:.0f} %", shown.where or shown.reason,
        )  # fmt: skip
    console = Console(width=220)
    console.print(table)
    findings = [finding for result in results for finding in result.findings]
    alarms = sum(len(result.alarms) for result in results)
    console.print(f"{len(results)} recipes, {len(findings)} findings, {alarms} false alarms; every finding in {RESULTS}")


def described(recipe: Recipe) -> tuple[str, str, str]:
    text = json.loads((recipe.checkpoint_dir / "config.json").read_text())["text_config"]
    pattern = "".join("F" if kind.startswith("full") else "L" for kind in text["layer_types"])
    batch, adapter = recipe.batch, recipe.adapter
    return (
        f"{pattern} {text['hidden_size']} {text['num_attention_heads']}/{text['num_key_value_heads']} w{text['sliding_window']}",
        f"{batch.micro_batch} x {batch.accumulation}",
        f"r {adapter.rank} alpha {adapter.alpha:g}{' rs' if adapter.rslora else ''}",
    )
