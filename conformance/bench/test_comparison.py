"""Two sweeps: a ratio where every check passed on both sides, and otherwise every reason why there is none."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.bench.cell_report import summaries_of
from conformance.bench.comparison import compare, length_problems
from conformance.bench.compiling import Window
from conformance.bench.metrics import Counters
from conformance.bench.show_sweep import comparison_lines, sweep_lines
from conformance.bench.synthetic_sweep import CELLS, SETTINGS, Scene, lagging, write_sweep
from conformance.findings import Verdict

LATENCY, THROUGHPUT = "TTFT p50", "output"
FAST, SLOW = (25.0, 25.5, 26.0), (50.0, 51.0, 52.0)


@pytest.fixture
def compared(tmp_path):
    def of(a: Scene, b: Scene, **cells):
        return compare(write_sweep(tmp_path / "a", a, **cells), write_sweep(tmp_path / "b", b))

    return of


def ratios_of(comparison, index=0):
    return {ratio.metric.name: ratio for ratio in comparison.cells[index].ratios}


def test_a_ratio_is_b_over_a_with_its_interval(compared):
    """TTFT 50, 51, 52 ms against 25, 25.5, 26: exactly half, and the interval covers it."""
    comparison = compared(Scene(SLOW), Scene(FAST))
    found = ratios_of(comparison)[LATENCY].interval
    assert found.value == pytest.approx(0.5)
    assert found.low < 0.5 < found.high
    assert found.n == 3
    assert not comparison.general
    lines = "\n".join(comparison_lines(comparison))
    assert "TTFT p50         0.5 [" in lines
    assert "WITHHELD" not in lines


def test_equal_sides_have_the_ratio_one(compared):
    comparison = compared(Scene(SLOW), Scene(SLOW))
    assert all(ratio.interval.value == pytest.approx(1.0) for cell in comparison.cells for ratio in cell.ratios)


def test_the_latency_of_a_saturated_cell_never_enters_a_ratio(compared):
    """Its throughput does. Control: the other cells of the same sweeps have both."""
    comparison = compared(Scene(SLOW), Scene(SLOW, busy_ms=75.0))  # 13.3 requests/s at the most: 20 are too many
    assert [cell.b.saturated for cell in comparison.cells] == [False, True, False]
    assert ratios_of(comparison, 0)[LATENCY].interval
    saturated = ratios_of(comparison, 1)
    assert saturated[LATENCY].interval is None
    assert saturated[LATENCY].withheld == ("B is saturated: its latency is that of a growing queue",)
    assert saturated["goodput (TTFT 100 ms)"].interval is None
    assert saturated[THROUGHPUT].interval.value < 0.98


def test_the_latency_of_a_burst_never_enters_a_ratio(tmp_path):
    """It is that of the queue. Control: a burst of one request has no queue."""
    cells = CELLS.split("[[groups]]")[0] + '[[groups]]\nmode = "burst"\nlevels = [1, 6]\ninput_tokens = [32]\noutput_tokens = 8\n'
    comparison = compare(*(write_sweep(tmp_path / name, Scene(SLOW), cells) for name in "ab"))
    assert ratios_of(comparison, 0)[LATENCY].interval
    assert ratios_of(comparison, 1)[LATENCY].withheld == ("in a burst the latency is that of the queue before a request",)
    assert ratios_of(comparison, 1)[THROUGHPUT].interval


BAD = {
    "kv_dtype": (
        Scene(settings=SETTINGS | {"kv_dtype": "fp8_e5m2"}),
        "the servers are set differently: kv_dtype: auto against fp8_e5m2",
    ),
    "no manifest": (Scene(settings={}), "B: the server's settings were not recorded"),
    "two starts": (Scene(SLOW[:2]), "B: server starts: 2; 3 are needed"),
    "other prompts": (Scene(seed=2), "other requests were sent to A than to B"),
    "no machine": (Scene(machine=""), "B: start 1: NOT PROVEN: speed of light"),
    "compiled": (
        Scene(change=lambda record: replace(record, window=Window(("Compiling a graph",)))),
        "B: start 1: FAIL: no compilation: 1 in the window: Compiling a graph",
    ),
    "no metrics": (
        Scene(change=lambda record: replace(record, before=Counters("no /metrics"), after=Counters("no /metrics"))),
        "B: start 1: NOT PROVEN: prefix cache: no /metrics",
    ),
    "one start thrice": (
        Scene(change=lambda record: replace(record, **{side: replace(getattr(record, side), process_start_s=1.0) for side in SIDES})),
        "B: 3 replicates are of 1 server starts",
    ),
    "a lagging client": (
        Scene(change_run=lagging),
        "B: start 1: FAIL: client kept up",
    ),
    "arrivals that end before the replies": (
        Scene((2000.0, 2000.0, 2000.0)),
        "B: start 1: INCONCLUSIVE: long enough: arrivals lasted",
    ),
    "a failed reply": (
        Scene(change_run=lambda run: replace(run, records=(replace(run.records[0], done_events=0), *run.records[1:]))),
        "B: start 1: FAIL: whole replies: {'cut_off': 1}",
    ),
}
SIDES = "before", "after"


@pytest.mark.parametrize("fault", BAD)
def test_whatever_is_not_proven_of_a_side_withholds_every_ratio(compared, fault):
    scene, words = BAD[fault]
    comparison = compared(Scene(SLOW), scene)
    ratios = ratios_of(comparison)
    assert {ratio.interval for ratio in ratios.values()} == {None}
    assert any(reason.startswith(words) for reason in ratios[THROUGHPUT].withheld)
    assert any(words in line for line in comparison_lines(comparison))


def test_settings_that_only_name_the_platform_are_named(compared):
    """They withhold nothing."""
    comparison = compared(Scene(SLOW), Scene(SLOW, settings=SETTINGS | {"tensor_parallel": 8}))
    assert [str(one) for one in comparison.servers] == ["tensor_parallel: 2 against 8"]
    assert ratios_of(comparison)[LATENCY].interval


def test_output_lengths_of_natural_replies_are_compared(compared):
    """7 and 8 tokens against 7 and 6: their means are 13 % apart; control: the same lengths in another order."""
    natural = Scene(SLOW, length="natural", output_tokens=(7, 8))
    comparison = compared(natural, replace(natural, output_tokens=(7, 6)))
    withheld = ratios_of(comparison)[THROUGHPUT].withheld
    assert any(reason.startswith("output length, mean: 6.5 tokens against 7.5") for reason in withheld)
    assert not list(length_problems(np.array([7, 8] * 9), np.array([8, 7] * 9)))


def test_cells_of_one_side_only_are_named(compared):
    comparison = compared(Scene(SLOW), Scene(SLOW), cells=CELLS.replace("levels = [10, 20]", "levels = [10]"))
    assert comparison.general == ("cell open-20-in32-out8-fixed is in one sweep only",)


def test_a_sweep_shows_every_start_and_reason(tmp_path):
    """Percentiles per start; p99 with its reason; no check is left out of a valid cell."""
    measurements = write_sweep(tmp_path / "a", Scene(SLOW))
    summaries = summaries_of(measurements)
    text = "\n".join(sweep_lines(measurements, summaries))
    assert "TTFT p50         50.99 [" in text
    assert "starts: 50, 51, 52" in text
    assert "p99 needs 459 whole replies" in text
    assert "valid" in text and "INVALID" not in text
    checks = {check.name: check.verdict for check in summaries[0].results[0].checks}
    assert set(checks.values()) == {Verdict.PASS}
    assert len(checks) == 13
