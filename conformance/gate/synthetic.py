"""An honest claim with everything that it needs, made by hand on a recorded pair of bundles; tests change one thing of it."""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from conformance.bench import synthetic_sweep, synthetic_training
from conformance.bench.prices import Price
from conformance.bench.synthetic_sweep import write_sweep
from conformance.bench.synthetic_training import write_manifest, write_training
from conformance.bench.training.measurements import TrainingMeasurements, read_manifest
from conformance.bench.training.records import Manifest, folder_name
from conformance.claims.claims_file import Claim, ClaimsFile
from conformance.contract.digest import canonical_json
from conformance.contract.levels import device_kind
from conformance.contract.serving.identity import merged_digests
from conformance.contract.timed_steps import STEPS
from conformance.findings import Verdict
from conformance.gate.costs import Prices
from conformance.gate.evidence import Evidence, open_measurements, weigh
from conformance.gate.gate import judge
from conformance.gate.lock import Lock
from conformance.gate.proof import Proof
from conformance.gate.results import ClaimResult, GateResult
from conformance.gate.training import Trainings
from conformance.gate.tuning import Job, Ledger, Side, Tried
from conformance.gate.values import SERVING, STACKS, TRAINING
from conformance.trajectories import series

STEP_MS = {"reference": (200.0, 202.0, 198.0, 201.0, 199.0), "port": (100.0, 101.0, 99.0, 100.5, 99.5)}
TTFT_MS = {"reference": (50.0, 51.0, 52.0), "port": (25.0, 25.5, 26.0)}
MACHINES = {"gpu": ("H100-2", 2), "tpu": ("v5p-8", 4), "cpu": ("H100-2", 2)}  # a CPU has no price: it borrows a name
SERVING_MACHINES = {"gpu": "H100-2", "tpu": "v6e-8", "cpu": "v6e-8"}
PORT_FIRST = {"numerator": "port", "denominator": "reference"}
TIME = {"metric": "training_time", "stated": "1.9", "kind": "at_least"}
TTFT = {"metric": "ttft_ms", "stated": "1.9", "kind": "at_least", "cell": "32 at 10/s"}
MEAN = {"metric": "output_tokens_per_s", "stated": "0.9", "kind": "at_least", "cell": "32 at 10/s", **PORT_FIRST}
PEAK = {"metric": "output_tokens_per_s", "stated": "1.1", "kind": "at_least", "cell": "32", "quantity": "peak", **PORT_FIRST}
COST = {"metric": "training_cost", "stated": "1.9", "kind": "at_least"}
CLAIM = {"name": "faster", "numerator": "reference", "denominator": "port", "source": "here"}
PRICES = {name: Price(10.0, "a list", "2026-11-30") for name in ("H100-2", "v5p-8", "v6e-8")}


def tuned(chosen: float, name: str) -> Side:
    """Two settings, the second of them better and chosen."""
    worse = chosen * (1.5 if name == "step_ms" else 0.5)
    return Side(40.0, "b", (Tried("a", **{name: worse}), Tried("b", **{name: chosen})))


LEDGER = Ledger(
    Job(*(tuned(STEP_MS[stack][0], "step_ms") for stack in STACKS)), Job(*(tuned(100.0, "output_tokens_per_s") for _ in STACKS))
)


@dataclass
class Stage:
    """A test changes it, and then `judge`s. `training`, `serving`: changes of the scenes of a stack.

    `after`: what becomes of a written folder by its name ("training-port"), before it is opened; `set_of`: claims in the file.
    """

    folder: Path
    proofs: list[Proof]
    flop: tuple[float, ...]  # of each step of the plan
    claim: dict = field(default_factory=dict)
    training: dict[str, dict] = field(default_factory=lambda: {stack: {} for stack in STACKS})
    serving: dict[str, dict] = field(default_factory=lambda: {stack: {} for stack in STACKS})
    manifests: dict[str, Callable[[Manifest], Manifest]] = field(default_factory=dict)
    after: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    prices: Prices = field(default_factory=lambda: Prices(PRICES))
    ledger: Ledger | None = LEDGER
    lock: Lock | None = None
    general: tuple[str, ...] = ()
    set_of: int = 1
    named: str = ""  # the lock's digest that measurements name, where it is not that of `lock`
    judged_with: list[Proof] | None = None  # other proofs than those that the measurements are made for

    @property
    def proof(self) -> Proof:
        """The one whose recipe is timed and served."""
        return self.proofs[-1]

    def judge(self) -> ClaimResult:
        return self.judge_all().claims[0]

    def judge_all(self) -> GateResult:
        paths = [self._written(f"{job}-{stack}") for job in self._jobs for stack in STACKS]
        trained, swept, damaged = open_measurements(paths)
        start = Evidence((), Trainings({}, ()), None, self.prices, self.ledger, self.lock, (*self.general, *damaged))
        proofs = self.proofs if self.judged_with is None else self.judged_with
        return judge(ClaimsFile(Path("claims.toml"), {}, self.claims(), ()), weigh(proofs, trained, swept, start))

    def claims(self) -> tuple[Claim, ...]:
        facts = CLAIM | {"levels": tuple(proof.level.name for proof in self.proofs)} | self.claim
        return tuple(Claim(**facts | {"name": f"claim {number}"}) for number in range(1, self.set_of + 1))

    @property
    def _named(self) -> str:
        return self.named or (self.lock.digest if self.lock else "")

    @property
    def _jobs(self) -> tuple[str, ...]:
        """Those that the claim needs."""
        metric = self.claim["metric"]
        return ("serving",) if metric in SERVING else ("training",) if metric in TRAINING else ("training", "serving")

    def _written(self, name: str) -> Path:
        job, stack = name.split("-")
        path = self.folder / name
        write = self._write_training if job == "training" else self._write_sweep
        write(path, stack)
        self.after.get(name, lambda path: None)(path)
        return path

    def _write_training(self, path: Path, stack: str) -> TrainingMeasurements:
        bundle = getattr(self.proof.pair, stack)
        platform = device_kind(bundle.manifest["device"])
        machine, chips = MACHINES[platform]
        curves = {"losses": "loss", "gradient_norms": "grad_norm"}
        facts = {
            "side": stack, "step_ms": STEP_MS[stack], "first_ms": 2000.0, "platform": platform, "machine": machine, "chips": chips,
            "checkpoint_sha256": bundle.manifest["checkpoint_sha256"], "change_manifest": self._manifest(stack),
            **{name: tuple(series(bundle, "f32", curve)) for name, curve in curves.items()},
        }  # fmt: skip
        return write_training(path, self.proof.plan, synthetic_training.Scene(**facts | self.training[stack]))

    def _manifest(self, stack: str) -> Callable[[Manifest], Manifest]:
        bundle, change = getattr(self.proof.pair, stack), self.manifests.get(stack, lambda manifest: manifest)

        def changed(manifest: Manifest) -> Manifest:
            said = {"environment": {"device": bundle.manifest["device"]}, "stack_code_sha256": bundle.manifest["code_sha256"]}
            facts = said | {"flop": self.flop[: manifest.steps]}
            return change(replace(manifest, **facts, lock_sha256=self._named))

        return changed

    def _write_sweep(self, path: Path, stack: str) -> None:
        bundle = getattr(self.proof.pair, stack)
        platform = device_kind(bundle.manifest["device"])
        facts = {"ttft_ms": TTFT_MS[stack], "platform": platform, "machine": SERVING_MACHINES[platform]}
        facts |= {"weights_sha256": merged_digests(bundle)}
        changes = dict(self.serving[stack])
        cells = changes.pop("cells", synthetic_sweep.CELLS)
        folder = write_sweep(path, synthetic_sweep.Scene(**facts | changes), cells)
        folder._save(lock_sha256=self._named)


def edit_json(path: Path, **changes) -> None:
    path.write_text(canonical_json(json.loads(path.read_text()) | changes))


def edit_steps(path: Path, words: dict[str, str], *, again: bool = True) -> None:
    """Fields of the first step of launch 1 become other words; `again`: the manifest's digests too."""
    file = path / folder_name(1) / STEPS
    text = file.read_text()
    for name, word in words.items():
        text = re.sub(rf'("{name}"):[^,}}]+', rf"\1:{word}", text, count=1)
    file.write_text(text)
    if again:
        write_manifest(path, read_manifest(path))


def as_level(proof: Proof, name: str) -> Proof:
    """The same pair as if its devices and size had shown that level: for what cannot be recorded on a CPU."""
    return dataclasses.replace(proof, level=dataclasses.replace(proof.level, name=name, reasons=()))


def as_served(proof: Proof) -> Proof:
    """As if its merged checkpoints had been served, where there is no vLLM to do that: the ladder says NOT PROVEN of it."""
    open_ones = [one for one in proof.level.findings if one.rung == "serving" and one.verdict is Verdict.NOT_PROVEN]
    kept = tuple(one for one in proof.level.findings if one not in open_ones)
    served = tuple(dataclasses.replace(one, verdict=Verdict.PASS, reason="") for one in open_ones)
    return dataclasses.replace(proof, level=dataclasses.replace(proof.level, findings=kept + served))
