"""Ways to get a ratio of two servers, or of the claimed devices, past the gate; the honest claims stand in test_ways_past.py."""

from dataclasses import replace

import pytest

from conformance.bench.synthetic_sweep import CELLS, SETTINGS, lagging
from conformance.gate.changes import (
    another,
    claims,
    ledger,
    manifest,
    scene,
    served,
    sweep,
    unserved,
    withheld,
    written,
)
from conformance.gate.synthetic import LEDGER, PEAK, TIME, TTFT, edit_json, tuned
from conformance.gate.tuning import Job

SERVING = {
    "a server that was not held to the model": (unserved, "serving: the claim needs it, and it has not passed: "),
    "the base model served": (served("base"), "it served the base checkpoint, not a merged one"),
    "mixed checkpoints": (served("strange"), "mixed checkpoints: it served weights that neither bundle merged"),
    "weights not said": (served("none"), "which weights were served is not recorded"),
    "swapped platform": (sweep(platform="tpu"), "swapped sides: sweep"),
    "too few starts": (sweep(ttft_ms=(25.0, 25.5)), "port: server starts: 2; 3 are needed"),
    "one start copied": (sweep(ttft_ms=(25.0,) * 3), "one run copied: open-10-in32-out8-fixed of start 2 has the raw times of start 1"),
    "saturated latency": (
        lambda stage: (claims(cell="32 at 20/s")(stage), sweep(busy_ms=75.0)(stage)), "port is saturated: its latency is that of",
    ),
    "another KV cache": (sweep(settings=SETTINGS | {"kv_dtype": "fp8"}), "the servers are set differently: kv_dtype: auto against fp8"),
    "other requests": (sweep(seed=2), "other requests were sent to A than to B"),
    "no such cell": (claims(cell="4096 at 4/s"), "cell '4096 at 4/s': not in both sweeps"),
    "a length without a rate": (claims(cell="32"), "cell '32': 2 cells are meant; name the rate"),
    "a p99 of few requests": (claims(percentile="p99"), "TTFT p99 was measured on neither side"),
    "a client that lagged": (sweep(change_run=lagging), "port: start 1: FAIL: client kept up"),
    "failed replies": (
        sweep(change_run=lambda run: replace(run, records=(replace(run.records[0], done_events=0), *run.records[1:]))),
        "port: start 1: FAIL: whole replies",
    ),
    "times out of order": (
        sweep(change_run=lambda run: replace(run, records=(replace(run.records[0], end_ns=5), *run.records[1:]))),
        "request 0: its times are not in order",
    ),
    "a machine without a bound": (sweep(machine=""), "port: start 1: NOT PROVEN: speed of light"),
    "a server not tuned": (ledger(serving=Job(None, LEDGER.serving.port)), "serving of the reference: the ledger has no [serving]"),
    "a server tuned for more": (
        ledger(serving=Job(LEDGER.serving.reference, tuned(1e6, "output_tokens_per_s"))), "one side untuned: the port's server gives ",
    ),
    "the worst level called the peak": (claims(quantity="peak", cell="32"), "ttft_ms has no peak; allowed: output_tokens_per_s"),
    "a rate in dollars": (
        claims(metric="cost_per_token", quantity="highest_rate", cell="32", slo_ttft_ms=50.0), "cost_per_token has no highest rate",
    ),
    "the other side's rate, called a latency": (
        claims(quantity="highest_rate", cell="32", stated="1.5", slo_ttft_ms=50.0), "inverted ratio: ttft_ms, reference / port",
    ),
    "a start dropped": (
        written(lambda path: edit_json(path / "manifest.json", replicates=4), "serving"), "port: 4 starts planned, 3 measured: start 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", SERVING)
def test_a_latency_does_not_get_past(stage, way):
    withheld(stage, TTFT, *SERVING[way])


def test_unequal_output_lengths_do_not_get_past(stage):
    """Natural replies of 7 and 6 tokens against 7 and 8. Control: the same lengths are reportable."""
    cells = CELLS.replace('length = "LENGTH"', 'length = "natural"')
    name = {"cell": "open-10-in32-out8-natural"}
    for stack in stage.serving:
        stage.serving[stack] = {"cells": cells, "output_tokens": (7, 8)}
    stage.claim = TTFT | name
    assert stage.judge().is_reportable
    stage.folder = stage.folder / "again"
    stage.folder.mkdir()
    stage.serving["port"] = {"cells": cells, "output_tokens": (7, 6)}
    withheld(stage, TTFT | name, lambda stage: None, "output length, mean: 6.5 tokens against 7.5")


def test_a_peak_with_one_invalid_level_does_not_get_past(stage):
    """The level that fails might have been a side's best."""
    stage.serving["reference"] = {"change_run": lagging}
    withheld(stage, PEAK, lambda stage: None, "closed-2-in32-out8-fixed: reference: start 1: FAIL: client kept up")


def test_a_peak_without_the_level_at_which_a_side_loses_does_not_get_past(stage):
    """The reference was measured at four requests under way too, the port at two alone."""
    more = CELLS.replace('"LENGTH"', '"fixed"').replace("levels = [2]", "levels = [2, 4]")
    stage.serving["reference"] = {"cells": more}
    withheld(stage, PEAK, lambda stage: None, "cell closed-4-in32-out8-fixed is in one sweep only")


# The claimed devices
CLAIMED = {
    "arithmetic on a CPU for a TPU's time": (claims(levels=("L0",)), "level too low: measured on gpu and tpu, so L1 and L2 are needed"),
    "no MFU": (manifest(flop=()), "untuned: no MFU: the measurement does not say what its steps"),
    "another model's FLOP": (manifest(flop=(1e18,) * 51), "digests: flop is not the plan's"),
    "more than the peak": (scene(step_ms=(0.0001, 0.0002, 0.0003, 0.0004, 0.0005), first_ms=0.0), "IMPOSSIBLE: MFU"),
    "other chips": (manifest(chips=8), "untuned: no MFU: 8 chips were used; v5p-8 has 4"),
    "an unknown machine": (manifest(machine="v9"), "machine 'v9' is not one of"),
    "another port at L1": (another("code_sha256"), "the port's pairs were recorded with different code: "),
    "another chip at L1": (another("device"), "the port's pairs were recorded with different device: "),
    "the claimed recipe at L1 alone": (lambda stage: stage.proofs.pop(), "level too low: L2 is needed"),
}


@pytest.mark.parametrize("way", CLAIMED)
def test_nothing_gets_past_on_the_claimed_devices(claimed_stage, way):
    withheld(claimed_stage, TIME | {"levels": ("L1", "L2")}, *CLAIMED[way])
