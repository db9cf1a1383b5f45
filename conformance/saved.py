"""What an earlier check left in its folder: findings, bundles, recipe, certificate."""

from pathlib import Path

from conformance import certificate
from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.findings import Finding, read_findings

FINDINGS, RECIPE = "findings.jsonl", "recipe.toml"
TINY = Path(__file__).with_name("recipes") / "tiny.toml"


def saved_findings(out: Path) -> list[Finding] | None:
    return read_findings(out / FINDINGS) if (out / FINDINGS).is_file() else None


def needed_findings(out: Path) -> list[Finding]:
    findings = saved_findings(out)
    if findings is None:
        raise ContractError(f"{out}: no {FINDINGS} in it: run `parity check --out {out}` first")
    return findings


def saved_bundle(saved: Path, given: Path | None) -> Bundle | None:
    """A given bundle must be whole; one that the check did not keep may be absent."""
    if given is None and not saved.is_dir():
        return None
    return Bundle(given or saved)


def saved_recipe(out: Path) -> Path:
    """The one in the folder, else the tiny one."""
    kept = out / RECIPE
    return kept if kept.is_file() else TINY


def saved_certificate(out: Path) -> dict | None:
    path = out / certificate.NAME
    return certificate.read_certificate(path) if path.is_file() else None
