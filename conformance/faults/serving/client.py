"""Plays the scenes of the client's and the sweep's faults against a scripted server, each with its fault and without one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.contract.faults import BENCH, REFUSED, Fault
from conformance.faults.judging import Outcome
from conformance.faults.serving.plants import planted
from conformance.faults.serving.scenes import FIRST_S, GAP_S, SCENES, Stage
from conformance.findings import Finding, Verdict
from fixtures.scripted_server import scripted_server

OPEN = (Verdict.FAIL, Verdict.INCONCLUSIVE)  # what withholds a figure or a ratio; what a scene has nothing for is not proven


class Theatre:
    """A scripted server on which scenes are played one after the other."""

    def __init__(self, url: str):
        self._url, self._seeds = url, count(1)

    def outcome(self, fault: Fault) -> Outcome:
        """A client that breaks shows the fault too, before anything is figured."""
        try:
            findings = self._play(fault, planted(fault))
        except Exception as error:
            return Outcome(fault, BENCH, REFUSED, where=f"{type(error).__name__}: {error}")
        first = _first(findings)
        return Outcome(fault, BENCH, first.check, first.used_percent, first.where, findings) if first else Outcome(fault)

    def alarms(self, faults: Iterable[Fault]) -> list[str]:
        """What is seen in the faults' scenes with nothing planted, where nothing may be."""
        scenes = {fault.records: fault for fault in faults}.values()
        found = [(fault.records[0], _first(self._play(fault, nullcontext()))) for fault in scenes]
        return [f"{scene}: {one.check}: {one.where}" for scene, one in found if one]

    def _play(self, fault: Fault, plant) -> tuple[Finding, ...]:
        (scene,) = fault.records
        with TemporaryDirectory(prefix="bench-fault-") as folder, plant:
            return SCENES[scene](Stage(self._url, Path(folder), next(self._seeds)))


@contextmanager
def theatre() -> Iterator[Theatre]:
    with scripted_server(FIRST_S, GAP_S) as url:
        yield Theatre(url)


def _first(findings: Iterable[Finding]) -> Finding | None:
    return next((one for one in findings if one.verdict in OPEN), None)
