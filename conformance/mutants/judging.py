"""What becomes of one plant: recorded and judged rung by rung until the ladder sees it, then what the peers see."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from conformance.checks import checks
from conformance.contract.bundle import Bundle
from conformance.contract.faults import REFUSED
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
        return self.check == CRASH

    @property
    def seen(self) -> str:
        return "not seen" if self.rung is None else f"{self.rung} / {self.check}"

    @property
    def caught(self) -> dict[str, bool]:
        """By name: the peers, then ours."""
        return self.peers | {OURS: self.rung is not None}


def rung_of(part: str) -> str:
    return part.split()[0]


def judge_mutant(mutant: Mutant | None, recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    """None: nothing is planted, the control of this run."""
    parts = reached(mutant.module, recorder.parts) if mutant else recorder.parts
    plant = {name: getattr(mutant, name) for name in Mutant.__slots__} if mutant else None
    return judge(mutant.id if mutant else "nothing planted", plant, parts, recorder, pair, given, folder)


def judge(name: str, plant, parts: tuple[str, ...], recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    """A crash is seen by everybody: nobody gets a result from such a port."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        recorder.ask(plant=plant, whole="trajectory f32" in parts)
        outcome = _climb(name, parts, recorder, pair, given, folder)
        recorder.ask(remove=True)
        return outcome
    except Lost as lost:
        return Outcome(name, "", CRASH, str(lost), dict.fromkeys(PEERS, True))
    finally:
        shutil.rmtree(folder)


def _climb(name: str, parts: tuple[str, ...], recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    port, seen = pair.port, None
    for rung, asked in _by_rung(parts).items():
        if seen:
            asked = tuple(part for part in asked if part in PEERS_PARTS)
        if not asked:
            continue
        answer = recorder.ask(record=asked, to=str(folder / rung))
        if "error" in answer:
            crash = (rung_of(answer["part"]), CRASH, answer["error"])
            return Outcome(name, *(seen or crash), dict.fromkeys(PEERS, True))
        port = Overlay(port, Bundle(folder / rung))
        seen = seen or _first_failure(rung, pair.reference, port, given)
    return _with_peers(name, seen, parts, recorder, pair, port, given, folder)


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


def _with_peers(name: str, seen, parts: tuple[str, ...], recorder: Recorder, pair: Pair, port, given: Given, folder: Path) -> Outcome:
    """Where no merge is recorded anew, the peer that looks at one sees what it sees with nothing planted: nothing."""
    if any(rung_of(part) == "merge" for part in parts):
        answer = recorder.ask(record=(PEERS_PARTS[-1],), to=str(folder / "peers"))
        if "error" in answer:
            return Outcome(name, *(seen or (None, None, answer["error"])), dict.fromkeys(PEERS, True))
        return Outcome(name, *(seen or NOWHERE), caught_by(pair.reference, Overlay(port, Bundle(folder / "peers")), given["plan"]))
    return Outcome(name, *(seen or NOWHERE), caught_by(pair.reference, port, given["plan"]) | {MERGE_PEER: False})
