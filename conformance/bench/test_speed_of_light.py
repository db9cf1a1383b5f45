"""Bounds that no server can beat, the published figures among those that do."""

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.bench.cells import Cell
from conformance.bench.speed_of_light import Cache, Model, bound_check, bounds_of, model_of, read_machine, speed_checks
from conformance.bench.synthetic import GOOD, MS
from conformance.contract.errors import ContractError
from conformance.findings import Verdict

TINY_GEMMA4 = Path(__file__).parents[2] / "fixtures" / "tiny-gemma4"
PAPER = Model(parameters=31e9, weight_bytes=62e9)
LONG = Cell("open", 4.0, 16_384, 512, "fixed", 480, seed=0)


def test_the_published_16k_prefill_is_impossible():
    """62 ms on eight v6e chips and 99 ms on two H100; the bounds are 0.14 s and 0.51 s (arXiv 2605.25645)."""
    for machine, reported_ms, bound_ms in (("v6e-8", 62.0, 138.3), ("H100-2", 99.0, 513.6)):
        least = bounds_of(read_machine(machine), PAPER, LONG, 512)
        assert least.ttft_ms == pytest.approx(bound_ms, rel=1e-3)
        check = bound_check("TTFT", reported_ms, least.ttft_ms, "ms")
        assert check.verdict is Verdict.FAIL
        assert "IMPOSSIBLE" in check.said
        assert "cached prefixes" in check.said
        assert bound_check("TTFT", bound_ms * 1.01, least.ttft_ms, "ms").verdict is Verdict.PASS


def test_the_published_decode_is_possible():
    """13.5 ms a token on eight v6e chips: 62 GB over 13.1 TB/s take 4.7 ms."""
    least = bounds_of(read_machine("v6e-8"), PAPER, LONG, 512)
    assert least.tpot_ms == pytest.approx(62e9 / (8 * 1640e9) * 1e3)
    assert least.tpot_ms < 13.5


def test_a_v5p_8_has_four_chips():
    """Eight TensorCores; control: v6e-8 has eight chips."""
    assert (read_machine("v5p-8").chips, read_machine("v6e-8").chips, read_machine("H100-2").chips) == (4, 8, 2)
    with pytest.raises(ContractError, match="machine 'v6e-4' is not one of v6e-8, v5p-8, H100-2"):
        read_machine("v6e-4")


def test_the_cache_is_read_for_each_of_those_together():
    """A window keeps so many tokens at most. By hand: 10 B for 100 of 1,000 tokens, 2 B for all of them."""
    model = Model(1e9, 2e9, (Cache(10, 100), Cache(2)))
    assert model.cache_bytes(1000) == 10 * 100 + 2 * 1000
    machine = read_machine("v6e-8")
    one, many = (bounds_of(machine, model, Cell("closed", level, 1000, 512, "fixed", 64, seed=0), 512) for level in (1.0, 64.0))
    assert many.requests_per_s > one.requests_per_s
    assert one.requests_per_s == pytest.approx(machine.bytes_per_s / (511 * (2e9 + model.cache_bytes(1256))))


def test_the_model_comes_from_its_config():
    """Weights that every token is multiplied with, without the embedding; K alone where it serves as V."""
    model = model_of(TINY_GEMMA4)
    local, world = 10, 2
    assert model.caches == (Cache(local * 2 * 4 * 32 * 2, 32), Cache(world * 2 * 80 * 2, None))
    assert model.weight_bytes / 2 - model.parameters == pytest.approx(768 * 96, rel=0.1)  # the embedding, and norms


def test_a_cache_of_eight_bits_is_half_as_large():
    """The published TPU server had one; where nobody knows, the bound is the generous one."""
    model = Model(1e9, 2e9, (Cache(10),))
    assert model.served({"kv_dtype": "auto"}) == model
    assert model.served({"kv_dtype": "fp8_e5m2"}).caches == model.served({}).caches == (Cache(5),)


def test_a_reply_that_is_too_fast_is_seen():
    """One TTFT of many is enough; TPOT by its median. Control: the same replies on a machine that can do it."""
    cell = Cell("open", 4.0, 16, 4, "fixed", 4, seed=0)
    fast = replace(GOOD, chunk_ns=(2 * MS, 12 * MS, 22 * MS, 32 * MS))  # 1 ms after it was sent
    slow = Model(parameters=1e12, weight_bytes=1e9)  # 4.4 ms a prompt
    checks = {check.name: check.verdict for check in speed_checks(read_machine("v6e-8"), slow, cell, (GOOD, GOOD, GOOD, fast))}
    assert checks == {
        "speed of light, TTFT": Verdict.FAIL, "speed of light, TPOT p50": Verdict.PASS, "speed of light, throughput": Verdict.PASS,
    }  # fmt: skip
    light = replace(slow, parameters=1e9)
    assert {check.verdict for check in speed_checks(read_machine("v6e-8"), light, cell, (GOOD, fast))} == {Verdict.PASS}
    heavy = replace(light, weight_bytes=1e13)
    assert {check.verdict for check in speed_checks(read_machine("v6e-8"), heavy, cell, (GOOD,) * 4)} == {Verdict.FAIL}


def test_without_a_machine_nothing_is_proven():
    cell = Cell("open", 4.0, 16, 4, "fixed", 4, seed=0)
    assert [check.verdict for check in speed_checks(None, PAPER, cell, (GOOD,))] == [Verdict.NOT_PROVEN]
