"""The gate's answer in the terminal: one block a claim, every reason on a line of its own."""

from collections.abc import Iterator

from conformance.gate.results import ClaimResult, GateResult

MOST = 40  # reasons of a level that are printed; all stand in --json


def gate_lines(result: GateResult) -> Iterator[str]:
    for level in result.levels:
        shown = "shown" if level.is_shown else "NOT SHOWN"
        yield f"proof: recipe {level.recipe_sha256[:12]}, {level.name}: {shown} on {_devices(level)}"
    for one in result.claims:
        yield ""
        yield from _claim_lines(one)
    yield ""
    passed = sum(one.is_reportable for one in result.claims)
    yield f"{passed} of {len(result.claims)} claims REPORTABLE" if result.claims else "no claims: nothing may be reported"


def _devices(level) -> str:
    return " and ".join(device or "no device named" for device in level.devices) or "nothing"


def _claim_lines(one: ClaimResult) -> Iterator[str]:
    claim = one.claim
    words = {"at_least": "at least", "equal": "equal to", "at_most": "at most"}[claim.kind]
    cell = f", {claim.cell}" if claim.cell else ""
    yield f"{one.verdict:10}  {claim.name}: {claim.metric}{cell}, {claim.numerator} / {claim.denominator} {words} {claim.stated}"
    if one.measured:
        yield from _measured_lines(one)
    yield from (f"            - {reason}" for reason in one.reasons[:MOST])
    if len(one.reasons) > MOST:
        yield f"            - and {len(one.reasons) - MOST} more (--json)"


def _measured_lines(one: ClaimResult) -> Iterator[str]:
    found = one.measured
    n = " and ".join(map(str, found.n))
    bound = f"upper bound {found.upper:.4g}" if one.claim.kind == "at_most" else f"lower bound {found.bound:.4g}"
    kind = "rates tried one by one" if found.low == found.bound else f"confidence {one.confidence:.2%}"
    yield f"            measured {found.value:.4g} [{found.low:.4g}, {found.high:.4g}], {bound} ({kind}, n = {n})"
    for stack, values in ((one.claim.numerator, one.numerator), (one.claim.denominator, one.denominator)):
        yield f"            {stack}: {', '.join(f'{value:.5g}' for value in values)} {one.unit}"
    yield from (f"            {note}" for note in one.notes)
