"""Negative controls: every check passes on the recorded bundles and fails when its own quantity is changed."""

import inspect

import pytest

from conformance.checks import checks, run_check
from conformance.findings import Verdict
from conformance.meta.controls import CONTROLS
from conformance.meta.tamper import Tampered

CHECKS = checks()


def is_control(name: str) -> bool:
    """The check is itself a negative control: its promise says so."""
    return inspect.getdoc(CHECKS[name][1]).startswith("Control:")


def test_every_check_has_a_control():
    """No check of the ladder is without a change that it must see, and no control is without its check."""
    assert {name for name in CHECKS if not is_control(name)} == set(CONTROLS)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_changed_recording_fails(name, pair, plan, recipe, limits):
    """The check fails on a bundle in which its quantity was changed a little."""
    change = CONTROLS[name]
    rung, check = CHECKS[name]
    bundles = {"reference": pair.reference, "port": pair.port}
    if not all(bundle.has(rung) and (bundle.exchanged or change.rung != "exchange") for bundle in bundles.values()):
        pytest.skip(f"{rung} is not recorded by both stacks")
    bundles[change.stack] = Tampered(bundles[change.stack], change)
    finding = run_check(rung, check, bundles["reference"], bundles["port"], plan=plan, recipe=recipe, limits=limits)
    assert finding.verdict is Verdict.FAIL
