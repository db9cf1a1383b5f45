"""pytest plugin: runs the rungs in order, stops a cascade, and collects one finding a check."""

import time
from pathlib import Path

import pytest

from conformance.checks import PREFIX
from conformance.contract.errors import NotRecorded
from conformance.contract.schema import RUNGS
from conformance.findings import Finding, Verdict, write_findings
from conformance.judge import Judge

FINDING = pytest.StashKey[Finding]()


def rung_of(item: pytest.Item) -> str | None:
    """The rung that a test belongs to: conformance/test_RUNG.py."""
    name = item.path.stem.removeprefix(PREFIX)
    return name if item.path.parent == Path(__file__).parent and name in RUNGS else None


def promise_of(item: pytest.Item) -> str:
    """First line of the test's docstring."""
    return (item.function.__doc__ or item.name).strip().splitlines()[0]


class Ladder:
    """Findings of a session by rung, and which rung failed first."""

    def __init__(self, config: pytest.Config):
        self.findings: list[Finding] = []
        self.deselected = False
        self.started = time.monotonic()
        self._only = config.getoption("--only")

    @property
    def failed_rung(self) -> str | None:
        return next((one.rung for one in self.findings if one.verdict is Verdict.FAIL), None)

    def pytest_collection_modifyitems(self, config, items) -> None:
        """Ladder checks first, rung by rung; every one is marked `parity`."""
        for item in items:
            if rung_of(item):
                item.add_marker(pytest.mark.parity)
        items.sort(key=lambda item: RUNGS.index(rung_of(item)) if rung_of(item) else len(RUNGS))
        if self._only:
            dropped = [item for item in items if rung_of(item) != self._only]
            items[:] = [item for item in items if rung_of(item) == self._only]
            config.hook.pytest_deselected(items=dropped)

    def pytest_deselected(self, items) -> None:
        self.deselected |= any(rung_of(item) for item in items)

    def pytest_runtest_setup(self, item) -> None:
        rung, failed = rung_of(item), self.failed_rung
        if rung and failed and RUNGS.index(rung) > RUNGS.index(failed):
            pytest.skip(f"not run: {failed} failed")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        rung = rung_of(item)
        if rung and (report.when == "call" or report.outcome != "passed"):
            finding = item.stash.get(FINDING, None) or _without_judge(item, rung, report)
            self.findings = [one for one in self.findings if (one.rung, one.check) != (rung, item.name)] + [finding]
            report.user_properties += [("verdict", str(finding.verdict)), ("where", finding.where)]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_findings(folder / "findings.jsonl", self.findings)


def _without_judge(item: pytest.Item, rung: str, report) -> Finding:
    """A check that was skipped or broke before it judged."""
    head = dict(rung=rung, check=item.name, promise=promise_of(item))
    if report.outcome == "skipped":
        return Finding(verdict=Verdict.NOT_PROVEN, reason=_skip_reason(report), **head)
    lines = str(report.longrepr).strip().splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]  # pytest's mark of the exception's own lines
    return Finding(verdict=Verdict.FAIL, reason=(errors or lines[-1:] or ["the check broke"])[0], **head)


def _skip_reason(report) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


@pytest.fixture
def judge(request):
    """Judge of the running check; concludes it when the test body is through."""
    judge = Judge(rung_of(request.node) or "", request.node.name, promise_of(request.node))
    request.node.stash[JUDGE] = judge
    return judge


JUDGE = pytest.StashKey[Judge]()


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """After the test's body the judge concludes: the finding is kept, a failure raises inside the call.

    A check that asks for what a partial rung does not have is not proven, unless it has measured a failure before.
    """
    outcome = yield
    judge = pyfuncitem.stash.get(JUDGE, None)
    if outcome.excinfo is not None and isinstance(outcome.excinfo[1], NotRecorded):
        if judge is None or not judge.has_failed:
            outcome.force_exception(pytest.skip.Exception(str(outcome.excinfo[1])))
            return
    elif judge is None or outcome.excinfo is not None:
        return
    pyfuncitem.stash[FINDING] = judge.finding
    try:
        judge.conclude(pyfuncitem.config.ladder.findings)
    except AssertionError as error:
        outcome.force_exception(error)
