"""What two training measurements showed for a claim: whether they are of the bundles that prove it, and the seconds of each launch."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.bench.speed_of_light import read_machine
from conformance.bench.training.figures import figures_of
from conformance.bench.training.measurements import TrainingMeasurements
from conformance.bench.training.records import Manifest
from conformance.claims.claims_file import Claim
from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.levels import device_kind
from conformance.gate.costs import Prices
from conformance.gate.launches import launch_reasons, seconds_of, whole_seconds_of
from conformance.gate.proof import Proof, proof_of
from conformance.gate.values import STACKS, Values

WORDS = {  # what two sides have in common
    "recipe_sha256": "recipe", "plan_sha256": "plan", "rows_sha256": "rows", "checkpoint_sha256": "checkpoint (mixed checkpoints)",
    "code_sha256": "the suite's code", "steps": "number of steps", "warm_up": "warm-up",
}  # fmt: skip


@dataclass(frozen=True)
class Trainings:
    """`by_stack`: the measurement of each side. `reasons`: why no claim about training holds; `notes`: what its readers must know."""

    by_stack: dict[str, TrainingMeasurements]
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()  # stacks of which fewer steps were timed than the recipe has

    def values(self, claim: Claim, prices: Prices) -> Values:
        """Of time, or of dollars: seconds from the end of warm-up to the end of the last step, one a launch."""
        missing = [f"no training measurement of the {stack}" for stack in STACKS if stack not in self.by_stack]
        in_dollars = claim.metric == "training_cost"
        machines = {stack: one.manifest.machine for stack, one in self.by_stack.items()}
        unpriced = [reason for machine in dict.fromkeys(machines.values()) for reason in prices.reasons(machine)] if in_dollars else []
        if reasons := (*missing, *self.reasons, *unpriced):
            return Values(reasons=tuple(reasons))
        seconds = {stack: seconds_of(self.by_stack[stack]) for stack in STACKS}
        if not in_dollars:
            return Values(*(tuple(seconds[stack]) for stack in STACKS), "s", notes=self.notes)
        dollars = (tuple(prices.usd(machines[stack], one) for one in seconds[stack]) for stack in STACKS)
        return Values(*dollars, "$", notes=(*self.notes, *map(prices.note, dict.fromkeys(machines.values()))))

    def paid_seconds(self, stack: str) -> list[float]:
        """From the start of each launch's process to its end: what a machine is paid for."""
        return whole_seconds_of(self.by_stack[stack])


def assign(measured: Sequence[TrainingMeasurements], proofs: Sequence[Proof], planned_steps: int | None = None) -> Trainings:
    """By the side that each says it is; whatever does not agree with bundles, with its own plan or with the other side is a reason.

    `planned_steps`: of a locked plan, which may be fewer than the recipe's.
    """
    by_stack, reasons, notes = {}, [], []
    for one in measured:
        side = one.manifest.side
        if side not in STACKS:
            reasons.append(f"measurements {one.path}: side {side!r} is not one of {', '.join(STACKS)}")
        elif side in by_stack:
            reasons.append(f"measurements {by_stack[side].path} and {one.path} are both of the {side}")
        else:
            by_stack[side] = one
    for stack, one in sorted(by_stack.items(), key=lambda item: STACKS.index(item[0])):
        found = list(_side_reasons(stack, one, proofs, planned_steps, by_stack.get("reference")))
        reasons += [f"{stack}: {reason}" for reason in found]
        notes += [f"{stack}: {one.manifest.machine or one.manifest.platform}, {len(one.whole)} launches"] if not found else []
    if len(by_stack) == len(STACKS):
        reasons += _pair_reasons(*(by_stack[stack].manifest for stack in STACKS))
    return Trainings(by_stack, tuple(reasons), tuple(notes), tuple(stack for stack, one in by_stack.items() if _is_part(one, proofs)))


def _is_part(one: TrainingMeasurements, proofs: Sequence[Proof]) -> bool:
    proof = proof_of(proofs, one.manifest.recipe_sha256)
    return proof is not None and one.manifest.steps < proof.plan.total_steps


def _side_reasons(
    stack: str, one: TrainingMeasurements, proofs: Sequence[Proof], planned_steps: int | None, timed: TrainingMeasurements | None
) -> Iterator[str]:
    """`timed`: the reference's own launches, which the port's runs with dropout are paired with by seed."""
    proof = proof_of(proofs, one.manifest.recipe_sha256)
    if proof is None:
        known = ", ".join(proof.level.recipe_sha256[:12] for proof in proofs) or "none"
        yield f"recipe {one.manifest.recipe_sha256[:12]} is not that of the bundles ({known}): what was timed is not what was proved"
        return
    yield from _bundle_reasons(stack, one.manifest, {name: getattr(proof.pair, name) for name in STACKS})
    try:
        is_paired = stack == "port" and timed is not None and proof.pair.recipe.adapter.dropout > 0
        reference = timed if is_paired else proof.pair.reference
        yield from launch_reasons(one, proof.plan, planned_steps, reference)
    except ContractError as error:  # a record that no benchmark writes, such as a time that is no number
        yield str(error)


def _bundle_reasons(stack: str, manifest: Manifest, bundles: dict[str, Bundle]) -> Iterator[str]:
    """Whether the side is the one that it says, and its code the one that was proved."""
    bundle, other = bundles[stack].manifest, next(one.manifest for name, one in bundles.items() if name != stack)
    kind = device_kind(bundle.get("device", ""))
    if manifest.platform != kind:
        yield f"swapped sides, or another device: timed on platform {manifest.platform!r}, proved on a {kind}"
    elif manifest.environment.get("device") != bundle.get("device"):
        yield f"another device: timed on {manifest.environment.get('device', 'none named')!r}, proved on {bundle.get('device')!r}"
    code = bundle.get("code_sha256", "")
    if code and manifest.stack_code_sha256 == code:
        return
    if not code:
        yield "the bundle does not say which code recorded it (code_sha256)"
    elif manifest.stack_code_sha256 == other.get("code_sha256"):
        yield f"swapped sides: it was timed with the code of the other side ({manifest.stack})"
    else:
        yield f"code differs: {manifest.stack} was timed with other code than the bundle was recorded with (stack_code_sha256)"


def _pair_reasons(reference: Manifest, port: Manifest) -> Iterator[str]:
    for key, words in WORDS.items():
        a, b = getattr(reference, key), getattr(port, key)
        if a != b:
            shown = f": {a} against {b}" if isinstance(a, int) else ""
            yield f"the sides differ in {words}{shown}"



def mfu_reasons(one: TrainingMeasurements) -> Iterator[str]:
    """Why it is not known how much of the machine's peak was used; nothing of a CPU, which has none in devices.toml."""
    if one.manifest.platform == "cpu":
        return
    try:
        machine = read_machine(one.manifest.machine)
    except ContractError as error:
        yield f"untuned: no MFU: {error}"
        return
    if machine.chips != one.manifest.chips:
        yield f"untuned: no MFU: {one.manifest.chips} chips were used; {machine.name} has {machine.chips}"
        return
    shares = [figures.mfu for figures in figures_of(one, machine)]
    if not shares or None in shares:
        yield "untuned: no MFU: the measurement does not say what its steps compute (flop)"
    elif not 0 < statistics.median(shares) <= 1:
        yield f"IMPOSSIBLE: MFU {statistics.median(shares):.0%}: more arithmetic than the machine's peak allows, or none"
