"""The certificate: canonical JSON that says at which level parity was shown, with the digest of everything it rests on.

It is only a summary. `verify` makes it again from findings and bundles and compares; without them it says nothing.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance.contract.bundle import EXCHANGE, MANIFEST, Bundle
from conformance.contract.digest import canonical_json, sha256_file, sha256_json, sha256_tree
from conformance.contract.errors import ContractError
from conformance.contract.levels import Level, level_for
from conformance.contract.recipe import Recipe
from conformance.contract.whole_text import write_text
from conformance.findings import Finding, Verdict
from conformance.pair import Pair, check_pair
from conformance.tolerances import FILE as TOLERANCES

NAME = "certificate.json"
FORMAT = 1
ADDED = (EXCHANGE, "serving")  # folders that join a whole bundle, each with a manifest of its own
DATE = "date"  # the one value that two certificates of the same work may differ in


@dataclass(frozen=True, slots=True)
class Certificate:
    """`values` is the whole content, as written."""

    values: dict

    @property
    def level(self) -> str:
        return self.values["level"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no certificate; one sentence a reason, never empty."""

    reasons: tuple[str, ...]


def certify(
    findings: Sequence[Finding], reference: Bundle | None, port: Bundle | None, recipe: Recipe, *, deselected: bool
) -> Certificate | Refusal:
    """A certificate only when every check of the level's rungs is there and passed, over two bundles of this recipe."""
    if reference is None or port is None:
        return Refusal(("a bundle is missing: nothing was compared",))
    level = level_of(reference, port)
    reasons = [*_pair_reasons(reference, port, recipe), *finding_reasons(findings, level)]
    if deselected:
        reasons.append("checks were deselected: only a whole run can be certified")
    return Refusal(tuple(reasons)) if reasons else Certificate(_values(findings, reference, port, level))


def level_of(reference: Bundle, port: Bundle) -> Level:
    """The level that findings of these two could show."""
    return level_for(_device(reference), _device(port), large=reference.large)


def write_certificate(folder: Path, result: Certificate | Refusal) -> Path | None:
    """Writes it beside its name and renames; a refusal removes an older one, which would outlive the run that it is about."""
    path = folder / NAME
    path.unlink(missing_ok=True)
    if isinstance(result, Refusal):
        return None
    return write_text(path, canonical_json(result.values) + "\n")


def read_certificate(path: Path) -> dict:
    try:
        values = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ContractError(f"certificate {path}: cannot be read: {error}") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ContractError(f"certificate {path}: not a certificate of format {FORMAT}")
    return values


def verify(path: Path, findings: Sequence[Finding], reference: Bundle, port: Bundle, recipe: Recipe) -> tuple[str, ...]:
    """What doesn't hold of the certificate at `path`; empty when all of it does. Every digest is computed again."""
    values = read_certificate(path)
    again = certify(findings, reference, port, recipe, deselected=False)
    if isinstance(again, Refusal):
        return again.reasons
    keys = sorted((set(values) | set(again.values)) - {DATE})
    return tuple(f"{key} is not what the certificate says" for key in keys if values.get(key) != again.values.get(key))


def _pair_reasons(reference: Bundle, port: Bundle, recipe: Recipe) -> list[str]:
    try:
        check_pair(Pair(recipe, reference, port))
    except ContractError as error:
        return [str(error)]
    return []


def finding_reasons(findings: Sequence[Finding], level: Level) -> list[str]:
    """Rungs without findings, and required findings that aren't PASS."""
    missing = [rung for rung in level.rungs if not any(finding.rung == rung for finding in findings)]
    failed = [one for one in findings if one.rung in level.rungs and one.verdict is not Verdict.PASS]
    return [
        *(f"{rung}: no check ran; {level.name} requires it" for rung in missing),
        *(f"{one.rung}: {one.check} is {one.verdict}" + (f" ({one.reason})" if one.reason else "") for one in failed),
    ]


def _values(findings: Sequence[Finding], reference: Bundle, port: Bundle, level: Level) -> dict:
    manifest = reference.manifest
    return {
        "format": FORMAT,
        "level": level.name,
        "shown_on": level.shown_on,
        "proves": level.proves,
        DATE: datetime.now(UTC).isoformat(timespec="seconds"),
        "rungs": {rung: sum(finding.rung == rung for finding in findings) for rung in level.rungs},
        **{key: manifest[key] for key in ("recipe_sha256", "plan_sha256", "rows_sha256", "checkpoint_sha256")},
        "findings_sha256": findings_digest(findings),
        "tolerances_sha256": sha256_file(TOLERANCES),
        "suite": {"version": suite_version(), "code_sha256": sha256_tree(Path(__file__).parent)},
        "reference": _side(reference),
        "port": _side(port),
    }


def _side(bundle: Bundle) -> dict:
    """A bundle by its manifest's digest, which covers every file in it, and by those of what was added to it later."""
    added = {name: bundle.path / name / MANIFEST for name in ADDED}
    return {
        "manifest_sha256": sha256_file(bundle.path / MANIFEST),
        **{f"{name}_sha256": sha256_file(path) if path.is_file() else "" for name, path in added.items()},
        "code_sha256": bundle.manifest.get("code_sha256", ""),
        "device": _device(bundle),
        "versions": bundle.manifest.get("versions", {}),
    }


def findings_digest(findings: Sequence[Finding]) -> str:
    """Independent of the order in which the checks ran."""
    return sha256_json(sorted(canonical_json(dataclasses.asdict(finding)) for finding in findings))


def suite_version() -> str:
    try:
        return version("tpu-parity")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "not installed"


def _device(bundle: Bundle) -> str:
    return bundle.manifest.get("device", "")
