"""Draws, plants, judges: one line of OUT/outcomes.jsonl a mutant, so that a run that was stopped goes on where it was."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Lock

from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, read_faults
from conformance.contract.progress import Progress, Speaker
from conformance.faults.judging import Given, failures
from conformance.faults.peers import PARTS as PEERS_PARTS
from conformance.faults.peers import PEERS
from conformance.faults.run import clean_pair, fixtures
from conformance.mutants.drawing import draw
from conformance.mutants.equivalents import are_equivalent, read_equivalents
from conformance.mutants.judging import Outcome, judge, judge_mutant
from conformance.mutants.recorder import Recorder
from conformance.mutants.table import print_faults, print_mutants
from conformance.pair import Pair
from conformance.summary import ALL_PASS, CHECK_FAILED

CONTROL = Outcome("nothing planted", peers=dict.fromkeys(PEERS, False))
Judge = Callable[[Recorder, Pair, Given, Path], Outcome]


def run_mutants(out: Path, count: int, seed: int, jobs: int, limit: float) -> int:
    mutants = draw(count, seed)
    if len(mutants) < count:
        raise ContractError(f"--count {count}: the port has {len(mutants)} mutants of these operators in these modules")
    names = {mutant: "/".join(mutant.key) for mutant in mutants}  # not by number: the draw changes with the code
    judges = {names[mutant]: partial(judge_mutant, mutant) for mutant in mutants}
    found = judged_all(out, "outcomes.jsonl", judges, jobs, limit)
    print_mutants(mutants, {mutant.id: found[names[mutant]] for mutant in mutants}, are_equivalent(mutants, read_equivalents()))
    return ALL_PASS


def run_faults(out: Path, jobs: int, limit: float) -> int:
    """The catalogue of planted faults with the peers' columns."""
    faults = read_faults()
    found = judged_all(out, "faults.jsonl", {fault.id: partial(_judge_fault, fault) for fault in faults}, jobs, limit)
    print_faults([found[fault.id] for fault in faults])
    return ALL_PASS if all(found[fault.id].rung for fault in faults) else CHECK_FAILED


def _judge_fault(fault: Fault, recorder: Recorder, pair: Pair, given: Given, folder: Path) -> Outcome:
    parts = tuple(part for part in recorder.parts if part in (*fault.records, *PEERS_PARTS))
    return judge(fault.id, fault.id, parts, recorder, pair, given, folder)


def judged_all(out: Path, file: str, judges: dict[str, Judge], jobs: int, limit: float) -> dict[str, Outcome]:
    out.mkdir(parents=True, exist_ok=True)
    pair, say = clean_pair(out), Speaker("mutants")
    given = fixtures(pair)
    alarms = [f"{finding.rung}: {finding.check}: {finding.where}" for finding in failures(pair.reference, pair.port, given)]
    if alarms:
        raise ContractError(f"the ladder fails on the clean pair in {out}, with nothing planted: {alarms[0]}")
    path, lock = out / file, Lock()
    found = _read(path)
    judges = {CONTROL.name: partial(judge_mutant, None)} | judges
    waiting: Queue = Queue()
    for name, judge_it in judges.items():
        if name not in found:
            waiting.put((name, judge_it))
    say(f"{len(judges) - waiting.qsize()} of {len(judges)} judged already")

    def work(job: int) -> None:
        with Recorder(out / "recipe.toml", out / "programs", limit, out / f"recorder-{job}.log") as recorder:
            while True:
                try:
                    name, judge_it = waiting.get_nowait()
                except Empty:
                    return
                outcome = judge_it(recorder, pair, given, out / f"plant-{job}")
                with lock:
                    found[name] = outcome
                    _append(path, name, outcome)
                    _say(say, outcome, len(found), len(judges))

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, job) for job in range(min(jobs, waiting.qsize()))]:
            done.result()
    _check_control(found[CONTROL.name])
    return found


def _check_control(outcome: Outcome) -> None:
    """With nothing planted nobody may see anything: neither the ladder nor a peer."""
    if outcome != CONTROL:
        raise ContractError(f"with nothing planted: {outcome.rung} {outcome.check} {outcome.where} {outcome.peers}")


def _say(say: Progress, outcome: Outcome, done: int, of: int) -> None:
    say(f"{done}/{of} {outcome.name}: {f'{outcome.rung} / {outcome.check}' if outcome.rung is not None else 'not seen'}")


def _append(path: Path, name: str, outcome: Outcome) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"key": name} | asdict(outcome)) + "\n")


def _read(path: Path) -> dict[str, Outcome]:
    lines: Iterable[dict] = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {line.pop("key"): Outcome(**line) for line in lines}

