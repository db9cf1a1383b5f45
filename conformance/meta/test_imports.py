"""Imports point one way: reference -> contract <- tpu_impl, and the contract knows no framework."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_SIDE = {"torch", "peft", "trl", "accelerate", "reference"}
JAX_SIDE = {"jax", "flax", "qwix", "tunix", "optax", "orbax", "grain", "tpu_impl"}
FORBIDDEN = {"reference": JAX_SIDE, "tpu_impl": TORCH_SIDE, "conformance": TORCH_SIDE | JAX_SIDE | {"transformers"}}


def imported(source: str) -> set[str]:
    """Top-level names that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_package_imports_the_other_side(package):
    """Neither stack imports the other, and the suite imports neither."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(path.relative_to(ROOT)): imported(path.read_text()) & FORBIDDEN[package] for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize("package", ["reference", "tpu_impl"])
def test_a_stack_imports_only_the_contract_of_the_suite(package):
    """From the suite a stack takes conformance.contract and nothing else."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("conformance"):
                assert node.module.startswith("conformance.contract"), f"{path}: {node.module}"


def test_an_import_in_a_function_is_seen():
    """Control: an import that hides in a function is found."""
    assert "torch" in imported("def f():\n    from torch.nn import Linear\n    return Linear\n")
