"""What is recorded anew under a mutant: everything that its module can change."""

from pathlib import Path

from conformance.contract.faults import read_faults
from conformance.mutants.drawing import MODULES
from conformance.mutants.reach import DROPOUT, REACH, reached

ROOT = Path(__file__).parents[2]
PARTS = tuple(dict.fromkeys(part for fault in read_faults() for part in fault.records))


def test_modules_that_are_named_are_drawn_from():
    assert set(REACH) | set(DROPOUT) <= set(MODULES)


def test_every_first_word_names_a_part():
    """A part that was renamed is not left out by its old name."""
    parts = (ROOT / "tpu_impl" / "faults" / "parts.py").read_text()
    assert [word for words in REACH.values() for word in words if f'"{word}' not in parts] == []


def test_a_module_that_is_not_named_changes_everything():
    assert reached("tpu_impl.session", PARTS) == PARTS


def test_masks_are_the_business_of_the_modules_that_name_dropout():
    having = {module for module in MODULES if "dropout" in (ROOT / (module.replace(".", "/") + ".py")).read_text()}
    assert having == set(DROPOUT)
    assert "trajectory dropout" in reached("tpu_impl.train", PARTS)
    assert "trajectory dropout" not in reached("tpu_impl.optimizer", PARTS)
