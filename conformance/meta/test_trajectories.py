"""The statistical summaries of training curves: worked values, and curves that must be told apart."""

import numpy as np
import pytest

from conformance.cli import main
from conformance.meta.synthetic import write_bundle
from conformance.statistics import Equivalence, fewest_fair_steps
from conformance.trajectories import rejected_rate_error, steps_to, summaries


def test_steps_to_a_target_are_counted_at_the_end_of_the_window():
    """A tenth of 20 steps is 2: the mean of steps 7 and 8 is the first at the target."""
    loss = np.array([4.0] * 6 + [3.0, 1.0] + [1.0] * 12)
    assert steps_to(loss, 2.0) == 8
    assert steps_to(loss, 0.5) == 21


def test_summaries_of_a_known_curve():
    found = summaries(np.arange(20, 0, -1.0))
    assert found == {"final loss": 1.0, "last tenth": 1.5, "area": 10.5}


def test_fewer_steps_than_the_spread_explains_are_unfair():
    """Reference 40 ± 2 (n = 5): a port at 39 is fair, one at 36 is faster than chance explains."""
    reference = np.array([38.0, 39, 40, 41, 42])
    fewest = fewest_fair_steps(reference, 5)
    assert 36 < fewest < 39


def test_the_rate_error_that_would_be_rejected():
    """Room of 4 % at a slope of 0.2 per unit of log rate: exp(0.2) - 1; a scatter over the margin sees nothing else."""
    assert rejected_rate_error(Equivalence(0.0, 0.01, 5, 0.01), 0.05, -0.2) == pytest.approx(np.exp(0.2) - 1)
    assert rejected_rate_error(Equivalence(0.0, 0.1, 5, 0.06), 0.05, -0.2) == 0


def test_margins_of_two_reference_bundles(tmp_path, recipe, plan, capsys):
    """`parity margins` prints 2.8 sd of each summary; a bundle against itself is refused."""
    write_bundle(tmp_path / "a", "reference", recipe, plan)
    write_bundle(tmp_path / "b", "port", recipe, plan)
    assert main(["margins", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("final loss", "last tenth", "area", "2.8 sd"))
    assert main(["margins", str(tmp_path / "a"), str(tmp_path / "a")]) == 2
    assert "seeds.dropout" in capsys.readouterr().err
