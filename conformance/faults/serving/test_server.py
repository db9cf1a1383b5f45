"""Faults of the rung serving: what is shown without vLLM. With it `tox -e faults` plants them all, `tox -e nightly` a third."""

import pytest

from conformance.contract.errors import ContractError
from conformance.contract.faults import of_stack, read_faults
from conformance.contract.progress import silent
from conformance.contract.serving import cpu
from conformance.contract.serving.recorder import PARTS, RUNG
from conformance.faults.grounds import fixtures
from conformance.faults.judging import Outcome, failures, judge_fault
from conformance.faults.recordings import recordings_of
from conformance.faults.run import Options, _code, _why_not_served, a_third, judged
from conformance.faults.serving.plants import SERVER
from conformance.faults.serving.server import TURN_END, record_server_faults, why_not, with_another_template
from conformance.faults.table import cells
from conformance.summary import ALL_PASS, CHECK_FAILED, NOT_DECIDED

FAULTS = of_stack(read_faults(), "server")


def test_every_plant_and_part_is_used():
    assert {fault.plant for fault in FAULTS} == set(SERVER)
    assert {part for fault in FAULTS for part in fault.records} == set(PARTS)


def test_without_vllm_they_are_not_proven(monkeypatch, tmp_path):
    """Neither caught nor missed; the reason is in the table, and the exit code says that something is open."""
    monkeypatch.setenv(cpu.PYTHON, "/no/such/python")
    outcome = judged(FAULTS[0], {}, tmp_path, why_not())
    assert cells(outcome)[:2] == (FAULTS[0].id, "NOT PROVEN")
    assert "/no/such/python" in cells(outcome)[-1]
    assert not outcome.as_expected
    assert _code([outcome], []) == NOT_DECIDED
    caught = Outcome(FAULTS[0], FAULTS[0].rung, FAULTS[0].check)
    assert [_code([caught], []), _code([Outcome(FAULTS[0])], []), _code([caught], ["alarm"])] == [ALL_PASS, CHECK_FAILED, CHECK_FAILED]


def test_recordings_without_a_server_are_not_proven(tmp_path):
    """Those of a run that had no vLLM, judged again; with recordings they are judged."""
    options = Options(tmp_path, recorded=True)
    assert str(tmp_path) in _why_not_served(options)
    recordings_of(tmp_path, "server").mkdir()
    assert _why_not_served(options) == ""


@pytest.mark.nightly
def test_a_third_is_caught_on_one_server(pair, tmp_path):
    """Those that share a start, on the session's pair, whose own rung serving is the control: it was recorded by the same parts."""
    if not all(bundle.has(RUNG) for bundle in (pair.reference, pair.port)):
        pytest.skip(f"NOT PROVEN: {pair.port.not_recorded.get(RUNG, 'the pair has no rung serving')}")
    faults, given = a_third(FAULTS), fixtures(pair)
    record_server_faults(pair.port, given["plan"], tmp_path / "server", faults, silent)
    assert not list(failures(pair.reference, pair.port, given, RUNG))
    found = {fault.id: judge_fault(fault, pair, tmp_path / "server", given) for fault in faults}
    assert {name: one.where for name, one in found.items() if not one.as_expected} == {}
    assert {fault.start for fault in faults} == {"shared"}


def test_another_template_is_in_a_copy(request, tmp_path):
    """All other files are the same; the checkpoint's own template is left alone."""
    checkpoint = request.config.rootpath / "fixtures" / "tiny-gemma4"
    own = (checkpoint / "chat_template.jinja").read_text()
    with with_another_template(checkpoint) as folder:
        assert {path.name for path in folder.iterdir()} == {path.name for path in checkpoint.iterdir()}
        assert (folder / "chat_template.jinja").read_text() == own.replace(TURN_END, "") != own
    assert (checkpoint / "chat_template.jinja").read_text() == own
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ContractError, match="nothing was planted"), with_another_template(tmp_path):
        pass
