"""The timed run of the port: the ladder's, and its clock waits for the device."""

import json
import time

import jax

from conformance.contract.timed_steps import STACK, STEPS, planned_step
from tpu_impl import bench as timing
from tpu_impl.train import Run

STEPS_RUN, WAIT_S = 2, 0.3


def test_a_timed_run_takes_the_plans_rows_and_its_clock_waits_for_the_device(session, tmp_path, monkeypatch):
    """A device that needs 0.3 s more for each step makes each step 0.3 s longer: time is read behind the wait."""
    waits, wait = [], jax.block_until_ready

    def block_until_ready(value):
        waits.append(time.sleep(WAIT_S))
        return wait(value)

    monkeypatch.setattr(timing.jax, "block_until_ready", block_until_ready)
    timing.bench(session, Run(steps=STEPS_RUN), tmp_path / "run")
    steps = [json.loads(line) for line in (tmp_path / "run" / STEPS).read_text().splitlines()]
    assert len(waits) == STEPS_RUN + 1
    assert all(step["end_ns"] - step["start_ns"] > WAIT_S * 1e9 for step in steps)
    assert steps[1]["start_ns"] == steps[0]["end_ns"]
    for step, planned in zip(steps, session.plan.steps, strict=False):
        expected = planned_step(session.plan, planned)
        assert {name: step[name] for name in expected} == expected
    assert steps[1]["loss"] < steps[0]["loss"]
    facts = json.loads((tmp_path / "run" / STACK).read_text())
    assert (facts["stack"], facts["platform"], facts["memory_of"]) == ("tpu_impl", "cpu", "RSS")
    assert facts["compile_s"] >= 0 and facts["peak_memory_bytes"] > 100e6
