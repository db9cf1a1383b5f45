"""`parity report`: the report again, or another form of it, from what a check has saved."""

import argparse
from pathlib import Path

from conformance.causes import likely_causes
from conformance.claims.claims_file import ClaimsFile, read_claims
from conformance.contract.recipe import load_recipe
from conformance.gate.command import given_of
from conformance.gate.gate import check_numbers, judge
from conformance.gate.results import GateResult
from conformance.pair import MODULES
from conformance.report.facts import Inputs, facts_of
from conformance.report.forms import write_latex, write_markdown, write_one_page, write_report
from conformance.report.measured import Measured, measured_of
from conformance.saved import needed_findings, saved_bundle, saved_certificate, saved_recipe
from conformance.summary import ALL_PASS


def run(options: argparse.Namespace) -> int:
    """The forms that are asked for; the page where none is."""
    inputs = _inputs(options)
    for path in _written(options, inputs):
        print(path)
    return ALL_PASS


def _inputs(options: argparse.Namespace) -> Inputs:
    """The page is of the pair that the folder's check was of: the last one that is given, else the folder's own."""
    findings = needed_findings(options.out)
    _complete(options)
    sides = [saved_bundle(options.out / stack, last(getattr(options, f"{stack}_bundle"))) for stack in MODULES]
    claims, measured, gate = judged(options)
    return Inputs(load_recipe(options.recipe[-1]), findings, *sides, saved_certificate(options.out), measured, claims, gate)


def _complete(options: argparse.Namespace) -> None:
    """The folder's recipe and bundles, where none are given: the gate takes whole pairs."""
    options.recipe = options.recipe or [saved_recipe(options.out)]
    for stack in MODULES:
        kept, name = options.out / stack, f"{stack}_bundle"
        if not getattr(options, name) and kept.is_dir():
            setattr(options, name, [kept])


def judged(options: argparse.Namespace) -> tuple[ClaimsFile | None, Measured, GateResult | None]:
    """What was measured, and what the gate says of each claim. Nothing is opened where nothing is asked for."""
    if not options.claims and not options.measurements:
        return None, Measured(), None
    claims = read_claims(options.claims) if options.claims else None
    has_bundles = options.reference_bundle or options.port_bundle
    measured = measured_of(given_of(options if has_bundles else argparse.Namespace(**vars(options) | {"recipe": []})))
    if claims is None:
        return None, measured, None
    check_numbers(claims)
    return claims, measured, judge(claims, measured.evidence)


def last(paths: list[Path]) -> Path | None:
    return paths[-1] if paths else None


def _written(options: argparse.Namespace, inputs: Inputs) -> list[Path]:
    facts, paths = facts_of(inputs), []
    if options.one_page:
        paths.append(write_one_page(options.out, facts))
    if options.markdown:
        paths.append(write_markdown(options.out, facts))
    if options.latex:
        paths += write_latex(options.latex, inputs, facts)
    return paths or [write_report(options.out, inputs, likely_causes, facts)]
