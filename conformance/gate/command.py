"""`parity gate`: reads what is given, prints the verdict on each claim, and opens or not by its exit code."""

import argparse
from pathlib import Path

from conformance.claims.claims_file import read_claims
from conformance.contract.digest import canonical_json
from conformance.contract.errors import ContractError
from conformance.contract.whole_text import write_text
from conformance.gate.evidence import Given
from conformance.gate.gate import run_gate
from conformance.gate.proof import Files
from conformance.gate.show import gate_lines
from conformance.summary import ALL_PASS, CHECK_FAILED

NAME = "gate.json"


def run(options: argparse.Namespace) -> int:
    if options.out and options.out.is_file():
        raise ContractError(f"--out {options.out}: a file; a folder is needed")
    result = run_gate(read_claims(options.claims), given_of(options))
    text = canonical_json(result.to_json())
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / NAME, text + "\n")
    for line in [text] if options.json else gate_lines(result):
        print(line)
    return ALL_PASS if result.is_open else CHECK_FAILED


def given_of(options: argparse.Namespace) -> Given:
    return Given(
        _pairs(options), tuple(options.measurements), tuple(options.certificate), options.prices, options.tuning, options.plan
    )


def _pairs(options: argparse.Namespace) -> tuple[Files, ...]:
    """In the order in which they are given; as many of each."""
    sides: dict[str, list[Path]] = {
        "--recipe": options.recipe, "--reference-bundle": options.reference_bundle, "--port-bundle": options.port_bundle
    }  # fmt: skip
    if len({len(paths) for paths in sides.values()}) > 1:
        counts = ", ".join(f"{name} {len(paths)} times" for name, paths in sides.items())
        raise ContractError(f"{counts}: a pair of bundles is one of each")
    return tuple(Files(*paths) for paths in zip(*sides.values(), strict=True))
