"""A small pair of bundles and findings that no stack recorded, for tests of report, certificate and command line."""

from pathlib import Path

import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.levels import L0
from conformance.contract.plan import Plan
from conformance.contract.recipe import Recipe
from conformance.findings import Finding, Verdict

PERTURBED = 8
ROUNDING = 3e-7  # relative, of a float32 step; it grows along a run


def passing_findings(rungs: tuple[str, ...] = L0.rungs) -> list[Finding]:
    """One exact and one arithmetic check a rung, all PASS."""
    return [finding for rung in rungs for finding in (_exact(rung), _arithmetic(rung))]


def failing_finding(rung: str = "adapters", **changes) -> Finding:
    values = dict(
        check="test_a_starts_with_the_recipes_spread", promise="A starts with the recipe's spread.", measured=1.449, limit=0.05,
        unit="relative difference of the standard deviation", where="port, layers.3.mlp.up_proj, seed 0", expected="0.0589",
        got="0.14423", compared=210,
    )  # fmt: skip
    return Finding(**dict(rung=rung, verdict=Verdict.FAIL) | values | changes)


def open_finding(rung: str = "sharding", reason: str = "not built yet") -> Finding:
    promise = "Split over devices, a stack computes what it computes on one."
    return Finding(rung, "test_shards", promise, Verdict.NOT_PROVEN, reason=reason)


def write_bundle(path: Path, stack: str, recipe: Recipe, plan: Plan) -> Bundle:
    """Trajectory, logits, batches and adapter facts of a plausible run; no two stacks have the same rounding."""
    with BundleWriter(path, stack=stack, recipe=recipe, plan=plan) as writer:
        _write_trajectory(writer, stack, plan)
        _write_hidden(writer, stack, plan)
        _write_batches(writer, plan)
        leaves: list[str] = []
        facts = dict(trainable_params=33_920, total_params=2_097_152, optimizer_leaves=leaves, optimizer_leaves_remat=leaves)
        writer.line("adapters", "facts", **facts)
        versions = {"torch": "2.13.0"} if stack == "reference" else {"jax": "0.10.2"}
        writer.manifest(device="cpu (x86_64)", versions=versions, matmul_precision="highest", code_sha256="0" * 64)
    return Bundle(path)


def _exact(rung: str) -> Finding:
    return Finding(rung, "test_names_are_equal", f"Names of {rung} are equal.", Verdict.PASS, 0.0, 0.0, "differences", compared=84)


def _arithmetic(rung: str) -> Finding:
    head = (rung, "test_values_are_as_exact_as_the_references", f"Values of {rung} are as exact as the reference's.", Verdict.PASS)
    return Finding(*head, 2.6e-6, 4.3e-6, "rms error, reference's x 1.5", "full", "base, layer 5 attention", compared=39)


def _write_trajectory(writer: BundleWriter, stack: str, plan: Plan) -> None:
    names = {"f32": "float32"} | {f"dropout-{seed}": "float32" for seed in range(plan.recipe.trajectory.dropout_pairs)}
    if stack == "reference":
        names |= {"f64": "float64"} | {f"perturbed-{index}": "float32" for index in range(PERTURBED)}
    for seed, (name, precision) in enumerate(names.items()):
        writer.line("trajectory", "run", run=name, precision=precision, seed=seed, dropout=0.0)
        for step in range(plan.total_steps):
            writer.line("trajectory", "step", **_step(name, stack, step, float(plan.learning_rates[step])))


def _step(name: str, stack: str, step: int, rate: float) -> dict:
    """A falling curve with bumps; runs other than float64 leave it by rounding that grows with the step."""
    draw = np.random.default_rng([step, len(stack), *name.encode()])
    if name.startswith("dropout-"):
        return _step_line(name, step, rate, 0.7 + 1.9 * np.exp(-step / 14) + 0.02 * draw.standard_normal(), 1.0)
    off = 1 if name == "f64" else 1 + ROUNDING * np.sqrt(step + 1) * draw.standard_normal()
    bump = np.sin(1.7 * step) * 0.12
    loss, norm = 0.7 + 1.9 * np.exp(-step / 14) + bump, 0.9 + 2 * np.exp(-step / 20) - bump
    return _step_line(name, step, rate, loss * off, norm * off)


def _step_line(name: str, step: int, rate: float, loss: float, norm: float) -> dict:
    return dict(run=name, step=step, loss=float(loss), grad_norm=float(norm), learning_rate=rate, tokens=412, loss_tokens=230)


def _write_hidden(writer: BundleWriter, stack: str, plan: Plan) -> None:
    """[P,L+1,S,H]; the error of a layer grows with its depth."""
    shape = (len(plan.probes.ids), len(plan.topology.layers) + 1, len(plan.probes.positions), plan.topology.hidden)
    truth = np.random.default_rng(0).standard_normal(shape)
    if stack == "reference":
        writer.array("logits", "f64/warm/hidden", truth)
    depth = np.arange(1, shape[1] + 1)[None, :, None, None]
    for precision, size in (("f32", 4e-7), ("bf16", 6e-3)):
        error = size * depth * np.random.default_rng(len(stack)).standard_normal(shape)
        writer.array("logits", f"{precision}/warm/hidden", (truth + error).astype(np.float32))


def _write_batches(writer: BundleWriter, plan: Plan) -> None:
    for step in plan.steps:
        planned = [plan.by_row[row] for row in step.rows]
        tokens, loss_tokens = sum(len(row.ids) for row in planned), sum(int(row.loss_mask.sum()) for row in planned)
        counts = dict(rows=len(planned), tokens=tokens, loss_tokens=loss_tokens)
        writer.line("batches", "steps", step=step.index, learning_rate=float(plan.learning_rates[step.index]), **counts)
