"""The timed run of the reference: the ladder's, and its clock waits for the device."""

import json
import time

from conformance.contract.timed_steps import STACK, STEPS, planned_step
from reference import bench as timing

STEPS_RUN, WAIT_S = 2, 0.3


def test_a_timed_run_takes_the_plans_rows_and_its_clock_waits_for_the_device(session, tmp_path, monkeypatch):
    """A device that needs 0.3 s more for each step makes each step 0.3 s longer: time is read behind the wait."""
    waits = []

    def synchronize() -> None:
        waits.append(time.sleep(WAIT_S))

    monkeypatch.setattr(timing, "synchronize", synchronize)
    timing.bench(session.recipe, tmp_path / "run", STEPS_RUN, None)
    steps = [json.loads(line) for line in (tmp_path / "run" / STEPS).read_text().splitlines()]
    assert len(waits) == STEPS_RUN + 1
    assert all(step["end_ns"] - step["start_ns"] > WAIT_S * 1e9 for step in steps)
    assert steps[1]["start_ns"] == steps[0]["end_ns"]
    for step, planned in zip(steps, session.plan.steps, strict=False):
        expected = planned_step(session.plan, planned)
        assert {name: step[name] for name in expected} == expected
    assert steps[1]["loss"] < steps[0]["loss"]
    facts = json.loads((tmp_path / "run" / STACK).read_text())
    assert (facts["stack"], facts["platform"], facts["memory_of"], facts["compile_s"]) == ("reference", "cpu", "RSS", None)
    assert facts["peak_memory_bytes"] > 100e6
