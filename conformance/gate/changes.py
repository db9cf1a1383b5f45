"""Changes of one thing of an honest claim, for tests: each takes a stage before it is judged."""

from copy import copy
from dataclasses import replace

from conformance.bench.prices import Price
from conformance.findings import Verdict
from conformance.gate.costs import Prices
from conformance.gate.results import ClaimVerdict
from conformance.gate.synthetic import LEDGER, PRICES, STEP_MS, Stage, edit_steps

FOREIGN = "f" * 64


def swap_sides(stage: Stage) -> None:
    """What the reference took is given as the port's, and the other way round."""
    codes = {name: getattr(stage.proof.pair, name).manifest["code_sha256"] for name in ("reference", "port")}
    stage.manifests = {
        "reference": lambda one: replace(one, stack="tpu_impl", stack_code_sha256=codes["port"]),
        "port": lambda one: replace(one, stack="reference", stack_code_sha256=codes["reference"]),
    }
    stage.training = {"reference": {"step_ms": STEP_MS["port"]}, "port": {"step_ms": STEP_MS["reference"]}}


def manifest(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.manifests = {stack: lambda one: replace(one, **changes)}

    return change


def scene(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.training[stack] = changes

    return change


def launch(number: int, **changes):
    return scene(change_launch=lambda one: replace(one, **changes) if one.number == number else one)


def step(number: int, **changes):
    """Of every launch; a value may be a function of the record."""

    def changed(_, one):
        values = {name: value(one) if callable(value) else value for name, value in changes.items()}
        return replace(one, **values) if one.step == number else one

    return scene(change_step=changed)


def written(change, job: str = "training", stack: str = "port"):
    def after(stage: Stage) -> None:
        stage.after = {f"{job}-{stack}": change}

    return after


def steps_as(**words: str):
    """Words of launch 1's steps replaced by others, digested again."""
    return written(lambda path: edit_steps(path, words))


def claims(**changes):
    def change(stage: Stage) -> None:
        stage.claim = stage.claim | changes

    return change


def ledger(**changes):
    def change(stage: Stage) -> None:
        stage.ledger = replace(LEDGER, **changes)

    return change


def prices(**changes):
    def change(stage: Stage) -> None:
        stage.prices = Prices(PRICES | {name: replace(price, **changes) for name, price in PRICES.items()})

    return change


def no_ledger(stage: Stage) -> None:
    stage.ledger = None


def unpriced(stage: Stage) -> None:
    stage.prices = Prices({"v6e-8": Price(1.0, "a list", "2026-11-30")})


def no_bundles(stage: Stage) -> None:
    """Findings and a certificate may say what they like."""
    stage.judged_with = []


def slower(one, first: int, longer_ms: int):
    """`first` takes so much longer; everything after it is later."""
    late = longer_ms * 10**6
    return replace(one, start_ns=one.start_ns + late * (one.step > first), end_ns=one.end_ns + late * (one.step >= first))


def sweep(stack: str = "port", **changes):
    def change(stage: Stage) -> None:
        stage.serving[stack] = changes

    return change


def served(of: str, stack: str = "port"):
    """The weights that a sweep's server had."""

    def change(stage: Stage) -> None:
        manifest = stage.proof.pair.reference.manifest
        weights = {"base": manifest["checkpoint_sha256"], "strange": {"model.safetensors": FOREIGN}, "none": {}}[of]
        stage.serving[stack] = {"weights_sha256": weights}

    return change


def unserved(stage: Stage) -> None:
    """The rung serving was not recorded, which no level of a tiny model asks for."""
    level, without = stage.proof.level, {"verdict": Verdict.NOT_PROVEN, "reason": "no vLLM"}
    findings = tuple(replace(one, **without) if one.rung == "serving" else one for one in level.findings)
    stage.judged_with = [replace(stage.proof, level=replace(level, findings=findings))]


def another(key: str):
    """What the pair of L1 says of the port; that of L2 is as it was."""

    def change(stage: Stage) -> None:
        proof = stage.proofs[0]
        port = copy(proof.pair.port)
        port.manifest = port.manifest | {key: "TPU v4"}
        stage.proofs[0] = replace(proof, pair=replace(proof.pair, port=port))

    return change


def withheld(stage: Stage, honest: dict, way, words: str) -> None:
    stage.claim = honest
    way(stage)
    found = stage.judge()
    assert found.verdict is ClaimVerdict.WITHHELD
    assert any(words in reason for reason in found.reasons), found.reasons
    assert found.measured is None or words.startswith("not reached")
