"""What a report states. Every form of it shows these facts and no other, and the reviewer's package checks each of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.causes import Explanation, explanations
from conformance.claims.claims_file import ClaimsFile
from conformance.contract.bundle import Bundle
from conformance.contract.levels import L0, LEVELS
from conformance.contract.recipe import Recipe
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict
from conformance.gate.results import GateResult
from conformance.gate.results import Level as GateLevel
from conformance.recipe_diff import plan_or_problem
from conformance.report.claims import Claims, claims_of
from conformance.report.measured import Advantage, Measured, Sweep, Training
from conformance.report.reproduce import Command, commands
from conformance.report.tables import Row, digest_rows, environment_rows, recipe_rows
from conformance.report.training import training_facts
from conformance.summary import RungSummary, count, summarise


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a report is made of. `certificate`: its content, None when there is none."""

    recipe: Recipe
    findings: Sequence[Finding]
    reference: Bundle | None = None
    port: Bundle | None = None
    certificate: dict | None = None
    measured: Measured = field(default_factory=Measured)
    claims: ClaimsFile | None = None
    gate: GateResult | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """`tone` is a verdict; `sentence` is for somebody who reads nothing else, `limits` what it does not say."""

    tone: Verdict
    sentence: str
    limits: str


@dataclass(frozen=True, slots=True)
class Level:
    """Of the certificate."""

    name: str
    date: str


@dataclass(frozen=True, slots=True)
class LevelFacts:
    """What the gate made of a pair of bundles. `verdicts`: of all its checks; `reasons`: what is missing for the level."""

    name: str
    recipe_sha256: str
    devices: tuple[str, ...]
    verdicts: dict[Verdict, int]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One rung with its findings, failures first."""

    summary: RungSummary
    about: Explanation
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class OpenChecks:
    """Checks of a rung that neither passed nor failed, for one reason."""

    rung: str
    verdict: Verdict
    reason: str
    checks: int


@dataclass(frozen=True, slots=True)
class Facts:
    """`level`: None without a certificate; `claims`: None where none are given; `levels`: of every pair that the gate has judged."""

    headline: Headline
    level: Level | None
    counts: dict[Verdict, int]
    claims: Claims | None
    levels: tuple[LevelFacts, ...]
    sections: tuple[Section, ...]
    open_checks: tuple[OpenChecks, ...]
    training: tuple[Training, ...]
    sweeps: tuple[Sweep, ...]
    advantages: tuple[Advantage, ...]
    recipe: tuple[Row, ...]
    environment: tuple[Row, ...]
    digests: tuple[Row, ...]
    commands: tuple[Command, ...]


def facts_of(inputs: Inputs) -> Facts:
    findings, sides = inputs.findings, (inputs.reference, inputs.port)
    plan, _ = plan_or_problem(inputs.recipe)
    sweeps, advantages, fastest = _serving(inputs)
    return Facts(
        headline=headline(findings, inputs.certificate),
        level=inputs.certificate and Level(inputs.certificate["level"], inputs.certificate["date"]),
        counts={verdict: count(findings, verdict) for verdict in Verdict},
        claims=claims_of(inputs.claims, inputs.gate, fastest),
        levels=tuple(_level(one) for one in inputs.gate.levels) if inputs.gate else (),
        sections=tuple(_section(summary, findings) for summary in summarise(findings)),
        open_checks=_open_checks(findings),
        training=training_facts(inputs.measured),
        sweeps=sweeps,
        advantages=advantages,
        recipe=recipe_rows(inputs.recipe, *sides, plan),
        environment=environment_rows(*sides),
        digests=digest_rows(*sides),
        commands=tuple(commands(*sides, inputs.measured)),
    )


def _serving(inputs: Inputs) -> tuple[tuple[Sweep, ...], tuple[Advantage, ...], dict[str, float]]:
    """(sweeps, advantages, claim -> ratio at the speed of light). What reads sweeps needs the extra `serving`."""
    if not inputs.measured.sweeps and not inputs.measured.trainings:
        return (), (), {}
    from conformance.report.fastest import fastest_ratios
    from conformance.report.serving import advantages, sweep_facts

    fastest = fastest_ratios(inputs.gate, inputs.measured.evidence) if inputs.gate else {}
    return sweep_facts(inputs.measured), advantages(inputs.measured), fastest


def headline(findings: Sequence[Finding], certificate: dict | None) -> Headline:
    total, failed, passed = len(findings), count(findings, Verdict.FAIL), count(findings, Verdict.PASS)
    if failed:
        first = next(finding.rung for finding in findings if finding.verdict is Verdict.FAIL)
        failures = f"{failed} of {total} checks failed, the first at “{first}”"
        sentence = f"The TPU port does not do the same work as the GPU recipe: {failures}."
        return Headline(Verdict.FAIL, sentence, "No speed or cost may be compared before this is mended.")
    if certificate is None:
        sentence = f"Nothing failed, but parity is not proven: {passed} of {total} checks passed, the others are open."
        return Headline(Verdict.NOT_PROVEN, sentence, "No speed or cost may be compared yet.")
    level = LEVELS[certificate["level"]]
    required = sum(finding.rung in level.rungs for finding in findings)
    sentence = f"The TPU port does the same work as the GPU recipe: all {required} required checks passed."
    return Headline(Verdict.PASS, sentence, f"Shown on {level.shown_on}: {level.proves}.{_beyond(level.name)}")


def _beyond(level: str) -> str:
    """What a level leaves open."""
    return " It says nothing yet of the claimed devices, of the full model, or of speed." if level == L0.name else ""


def _level(level: GateLevel) -> LevelFacts:
    verdicts = {verdict: count(level.findings, verdict) for verdict in Verdict}
    return LevelFacts(level.name, level.recipe_sha256, level.devices, verdicts, level.reasons)


def _section(summary: RungSummary, findings: Sequence[Finding]) -> Section:
    own = [finding for finding in findings if finding.rung == summary.rung]
    failures_first = sorted(own, key=lambda finding: finding.verdict is not Verdict.FAIL)
    return Section(summary, explanations()[summary.rung], tuple(failures_first))


def _open_checks(findings: Sequence[Finding]) -> tuple[OpenChecks, ...]:
    """By rung and reason: one cause seldom stops one check alone."""
    undecided = (one for one in findings if one.verdict in (Verdict.NOT_PROVEN, Verdict.INCONCLUSIVE))
    groups = Counter((one.rung, one.verdict, one.reason or "no reason was given") for one in undecided)
    ran = {finding.rung for finding in findings}
    never = [OpenChecks(rung, Verdict.NOT_PROVEN, "no check ran", 0) for rung in RUNGS if rung not in ran]
    return (*(OpenChecks(*group, number_of) for group, number_of in groups.items()), *never)
