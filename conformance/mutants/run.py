"""Draws, plants, judges: one line of OUT/outcomes.jsonl a mutant, so that a run that was stopped goes on where it was.

A mutant is known there by its function and lines. Remove the file when ladder or recorders have changed.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread

from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, chosen, of_stack, read_faults
from conformance.contract.progress import Speaker
from conformance.faults.grounds import programs_of, small_ground
from conformance.faults.judging import Given, alarms
from conformance.faults.peers import PARTS as PEERS_PARTS
from conformance.faults.peers import PEERS
from conformance.mutants.drawing import draw
from conformance.mutants.equivalents import are_equivalent, read_equivalents
from conformance.mutants.judging import Outcome, judge, judge_mutant
from conformance.mutants.recorder import Recorder
from conformance.mutants.table import print_faults, print_mutants
from conformance.pair import Pair
from conformance.summary import ALL_PASS, CHECK_FAILED

CONTROL = Outcome("nothing planted", peers=dict.fromkeys(PEERS, False))
OUTCOMES = "outcomes.jsonl"
Judge = Callable[[Recorder, Pair, Given, Path], Outcome]


def run_mutants(out: Path, count: int, seed: int, jobs: int, limit: float) -> int:
    mutants = draw(count, seed)
    if len(mutants) < count:
        raise ContractError(f"--count {count}: the port has {len(mutants)} mutants of these operators in these modules")
    names = {mutant: "/".join(mutant.key) for mutant in mutants}  # not by number: the draw changes with the code
    judges = {names[mutant]: partial(judge_mutant, mutant) for mutant in mutants}
    found = judged_all(out, judges, jobs, limit)
    print_mutants(mutants, {mutant.id: found[names[mutant]] for mutant in mutants}, are_equivalent(mutants, read_equivalents()))
    return ALL_PASS


def run_faults(out: Path, ids: tuple[str, ...] | None, jobs: int, limit: float) -> int:
    """The port's faults of the catalogue (or some of them) with the peers' columns; without those that one process can't record."""
    faults = tuple(fault for fault in of_stack(chosen(read_faults(), ids), "port") if not fault.apart)
    found = judged_all(out, {fault.id: partial(_judge_fault, fault) for fault in faults}, jobs, limit)
    print_faults([found[fault.id] for fault in faults])
    return ALL_PASS if all(found[fault.id].rung for fault in faults) else CHECK_FAILED


def _judge_fault(fault: Fault, recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    parts = tuple(part for part in recorder.parts if part in (*fault.records, *PEERS_PARTS))
    return judge(fault.id, fault.id, parts, recorder, pair, given, folder)


def judged_all(out: Path, judges: dict[str, Judge], jobs: int, limit: float) -> dict[str, Outcome]:
    """An outcome for each of `judges`, by the same names; the control's first."""
    out.mkdir(parents=True, exist_ok=True)
    ground, say = small_ground(out, jobs), Speaker("mutants")
    pair, given = ground.pair, ground.given
    if found := alarms(pair, given):
        raise ContractError(f"the ladder fails on the clean pair in {out}, with nothing planted: {found[0]}")
    path = out / OUTCOMES
    found = _read(path)
    judges = {CONTROL.name: partial(judge_mutant, None)} | judges
    waiting = [(name, judge_it) for name, judge_it in judges.items() if name not in found]
    say(f"{len(judges) - len(waiting)} of {len(judges)} judged already")
    logs = [out / f"recorder-{job}.log" for job in range(min(jobs, len(waiting)))]
    recorders = [Recorder(out / "recipe.toml", programs_of(out), limit, log) for log in logs]
    for left, (name, outcome) in enumerate(_judged(waiting, recorders, pair, given, out), 1 - len(waiting)):
        found[name] = outcome
        _append(path, name, outcome)
        say(f"{len(judges) + left} of {len(judges)}, {outcome.name}: {outcome.seen}")
    _check_control(found[CONTROL.name])
    return found


def _judged(waiting: list, recorders: list[Recorder], pair: Pair, given: Given, out: Path) -> Iterator[tuple[str, Outcome]]:
    """As they come. When this ends early (Ctrl-C, an error) the recorders end too."""
    left, done = deque(waiting), Queue()

    def work(job: int, recorder: Recorder) -> None:
        try:
            with recorder:
                while True:
                    try:
                        name, judge_it = left.popleft()
                    except IndexError:
                        return
                    done.put((name, judge_it(recorder, pair, given, out / f"plant-{job}")))
        except BaseException as error:  # raised again where the outcomes are read
            done.put(error)

    for job, recorder in enumerate(recorders):
        Thread(target=work, args=(job, recorder), daemon=True).start()
    try:
        for _ in waiting:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        left.clear()
        for recorder in recorders:
            recorder.stop()


def _check_control(outcome: Outcome) -> None:
    """With nothing planted nobody may see anything: neither the ladder nor a peer."""
    if outcome != CONTROL:
        raise ContractError(f"with nothing planted: {outcome.rung} {outcome.check} {outcome.where} {outcome.peers}")


def _append(path: Path, name: str, outcome: Outcome) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"key": name} | asdict(outcome)) + "\n")


def _read(path: Path) -> dict[str, Outcome]:
    lines: Iterable[dict] = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {line.pop("key"): Outcome(**line) for line in lines}

