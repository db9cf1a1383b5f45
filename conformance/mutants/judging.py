"""What becomes of one plant: recorded and judged rung by rung until the ladder sees it, then what the peers see."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from conformance.checks import checks
from conformance.contract.bundle import Bundle
from conformance.contract.faults import REFUSED, rung_of
from conformance.contract.mutants import Mutant
from conformance.faults.judging import Given, judged
from conformance.faults.overlay import Overlay
from conformance.faults.peers import MERGE_PEER, PEERS, caught_by
from conformance.faults.peers import PARTS as PEERS_PARTS
from conformance.findings import Verdict
from conformance.mutants.reach import reached
from conformance.mutants.recorder import Lost, Recorder
from conformance.pair import Pair

CRASH = REFUSED  # instead of a check: the port itself ends in an error, or never
# What everybody does who has a port. An error here is seen by everybody: nobody gets a result. One in the ladder's other parts is
# the ladder's alone.
EVERYDAY = (
    "batches consumed", "logits f32 warm", "trajectory f32", "merge loud", "merge loud logits", "merge in float32", "generation f32",
)  # fmt: skip
OURS = "the ladder"
NOWHERE = (None, None, "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rung and check that saw it first (None: none did); which peers did."""

    name: str  # a mutant's or a fault's id
    rung: str | None = None
    check: str | None = None
    where: str = ""
    peers: dict[str, bool] = field(default_factory=dict)

    @property
    def crashed(self) -> bool:
        """Nobody gets a result from it."""
        return self.check == CRASH and all(self.peers.values())

    @property
    def seen(self) -> str:
        return "not seen" if self.rung is None else f"{self.rung} / {self.check}"

    @property
    def caught(self) -> dict[str, bool]:
        """By name: the peers, then ours."""
        return self.peers | {OURS: self.rung is not None}


def judge_mutant(mutant: Mutant | None, recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    """None: nothing is planted, the control of this run."""
    parts = reached(mutant.module, recorder.parts) if mutant else recorder.parts
    plant = {name: getattr(mutant, name) for name in Mutant.__slots__} if mutant else None
    return judge(mutant.id if mutant else "nothing planted", plant, parts, recorder, pair, given, folder)


def judge(name: str, plant, parts: tuple[str, ...], recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    """One plant. What hangs or takes the process with it is seen by everybody."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        recorder.ask(plant=plant, whole="trajectory f32" in parts)
        outcome = _Climb(name, parts, recorder, pair, given, folder).outcome()
        recorder.ask(remove=True)
        return outcome
    except Lost as lost:
        return Outcome(name, "", CRASH, str(lost), dict.fromkeys(PEERS, True))
    finally:
        shutil.rmtree(folder)


class _Climb:
    """Up the ladder until something is seen; then only what the peers read."""

    def __init__(self, name: str, parts: tuple[str, ...], recorder: Recorder, pair: Pair, given: Given, folder: Path):
        self._name, self._parts, self._recorder, self._pair, self._given, self._folder = name, parts, recorder, pair, given, folder
        self._port, self._seen, self._useless = pair.port, None, False

    def outcome(self) -> Outcome:
        for rung, parts in _by_rung(self._parts).items():
            if not self._seen:
                self._record(rung, parts)
                self._seen = self._seen or _first_failure(rung, self._pair.reference, self._port, self._given)
            if self._seen and not (self._folder / rung).exists():
                self._record(rung, tuple(part for part in parts if part in PEERS_PARTS))
        seen = self._seen or NOWHERE  # before the part that is recorded for a peer alone
        return Outcome(self._name, *seen, self._peers())

    def _record(self, rung: str, parts: tuple[str, ...]) -> None:
        """Over the bundle so far, if it can be recorded."""
        if not parts or self._useless:
            return
        answer = self._recorder.ask(record=parts, to=str(self._folder / rung))
        if "error" in answer:
            self._seen = self._seen or (rung_of(answer["part"]), CRASH, answer["error"])
            self._useless = answer["part"] in EVERYDAY
        else:
            self._port = Overlay(self._port, Bundle(self._folder / rung), parts)

    def _peers(self) -> dict[str, bool]:
        """Where no merge is recorded anew, the peer that looks at one sees what it sees with nothing planted: nothing."""
        merges = any(rung_of(part) == "merge" for part in self._parts)
        if merges:
            self._record("peers", PEERS_PARTS[-1:])
        if self._useless:
            return dict.fromkeys(PEERS, True)
        return caught_by(self._pair.reference, self._port, self._given["plan"]) | ({} if merges else {MERGE_PEER: False})


def _by_rung(parts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for part in parts:
        if part != PEERS_PARTS[-1]:
            found.setdefault(rung_of(part), []).append(part)
    return {rung: tuple(those) for rung, those in found.items()}


def _first_failure(rung: str, reference: Bundle, port, given: Given) -> tuple[str, str, str] | None:
    for of, check in checks().values():
        if of == rung:
            finding = judged(rung, check, reference, port, given)
            if finding.verdict is Verdict.FAIL:
                return rung, finding.check, finding.where or finding.reason
    return None
