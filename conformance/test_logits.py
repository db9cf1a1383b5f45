"""Rung logits: the forward pass of base and adapted model, layer by layer, against a float64 oracle."""

import numpy as np

from conformance.compare import error_shape, hidden_mask, layers, real_logits, rms, rms_error, wide
from conformance.contract.bundle import Bundle

STREAMS = ("attention", "mlp", "hidden")  # in the order of a layer's computation
STATES = ("base", "warm")  # without the adapter, and with the warm one
EXACT_POSITIONS = 257  # 0 to 256: what bfloat16 counts exactly


def judge_arithmetic(judge, where, port, reference, oracle, factor) -> None:
    """The port's rms error against the oracle is at most `factor` times the reference's own."""
    mine, floor = rms_error(port, oracle), rms_error(reference, oracle)
    most, shape = f"rms error at most {factor} x {floor:.3g}", error_shape(port, oracle)
    judge.within(where, mine, factor * floor, expected=most, got=f"{mine:.3g}", shape=shape)


def test_float32_streams_are_as_exact_as_the_references(judge, reference, port, plan, limits):
    """Layer by layer, attention, MLP and residual stream are as close to the float64 oracle as the reference's."""
    judge.measure_in("rms error, reference's x 1.5", "sampled")
    _judge_streams(judge, reference, port, plan, limits, "f32", ("f64", reference))


def test_bfloat16_streams_are_as_exact_as_the_references(judge, reference, port, plan, limits):
    """In bfloat16 every stream is as close to the reference's float32 as the reference's own bfloat16."""
    judge.measure_in("rms error, reference's x 1.5", "sampled")
    _judge_streams(judge, reference, port, plan, limits, "bf16", ("f32", reference))


def _judge_streams(judge, reference, port, plan, limits, precision, oracle) -> None:
    """In the order of the computation, so that the first place that drifts is the first over the limit."""
    mask, factor = hidden_mask(plan), limits["arithmetic"].value
    for state in STATES:
        streams = {name: _sides(port, reference, oracle, f"{state}/{name}", precision, mask) for name in STREAMS}
        judge_arithmetic(judge, f"{state}, embedding", *streams["hidden"][0], factor)
        for layer in plan.topology.layers:
            for name in STREAMS:
                place = f"{state}, layer {layer.index} ({layer.kind}) {name}"
                # The residual stream begins with the embedding.
                judge_arithmetic(judge, place, *streams[name][layer.index + (name == "hidden")], factor)


def _sides(port, reference, oracle, key: str, precision: str, mask) -> list[tuple[np.ndarray, ...]]:
    """(port's, reference's, oracle's) of every layer."""
    values = [layers(bundle, f"{precision}/{key}", mask) for bundle in (port, reference)]
    return list(zip(*values, layers(oracle[1], f"{oracle[0]}/{key}", mask), strict=True))


def test_float32_logits_are_as_exact_as_the_references(judge, reference, port, plan, limits):
    """Every position's logits are as close to the float64 oracle as the reference's."""
    judge.measure_in("rms error, reference's x 1.5")
    for state in STATES:
        sides = [real_logits(plan, b.array("logits", f"f32/{state}/logits")) for b in (port, reference)]
        truth = real_logits(plan, reference.array("logits", f"f64/{state}/logits"))
        judge_arithmetic(judge, state, *sides, truth, limits["arithmetic"].value)


def test_bfloat16_logits_are_as_exact_as_the_references(judge, reference, port, plan, limits):
    """In bfloat16 the logits are as close to the reference's float32 as the reference's own bfloat16."""
    judge.measure_in("rms error, reference's x 1.5")
    for state in STATES:
        sides = [real_logits(plan, b.array("logits", f"bf16/{state}/logits")) for b in (port, reference)]
        truth = real_logits(plan, reference.array("logits", f"f32/{state}/logits"))
        judge_arithmetic(judge, state, *sides, truth, limits["arithmetic"].value)


def test_padding_does_not_change_the_logits(judge, reference, port, plan, limits):
    """Left padding, no padding and a row alone give the logits of the right-padded batch."""
    judge.measure_in("rms error, reference's x 1.5")
    oracle = wide(reference.array("logits", "f64/warm/logits"))
    for variant, key, rows in (("left", "warm.left", len(oracle)), ("none", "long", 1)):
        sides = [_aligned(bundle, key, plan, rows) for bundle in (port, reference)]
        judge_arithmetic(judge, f"warm, padding {variant}", *sides, _rows(oracle, plan, rows), limits["arithmetic"].value)


def test_long_rows_are_as_exact_as_the_references(judge, reference, port, limits):
    """A row past position 256, where bfloat16 no longer counts exactly, has logits as exact as the reference's."""
    judge.measure_in("rms error, reference's x 1.5")
    for precision, oracle in (("f32", "f64"), ("bf16", "f32")):
        sides = [_long(bundle, precision) for bundle in (port, reference)]
        for part, stretch in _stretches(reference).items():
            mine, theirs, exact = (value[stretch] for value in (*sides, _long(reference, oracle)))
            judge_arithmetic(judge, f"{precision}, {part}", mine, theirs, exact, limits["arithmetic"].value)


def _long(bundle: Bundle, precision: str) -> np.ndarray:
    """[U,V]; a large model's sampled positions [n,V]."""
    logits = bundle.array("logits", f"{precision}/long/logits")
    return logits if logits.ndim == 2 else logits[0]


def _stretches(reference: Bundle) -> dict[str, slice]:
    """The two are judged apart: few positions are past it."""
    if reference.large:
        return {"sampled positions": slice(None)}
    return {"positions to 256": slice(EXACT_POSITIONS), "positions past 256": slice(EXACT_POSITIONS, None)}


def _aligned(bundle: Bundle, key: str, plan, rows: int) -> np.ndarray:
    """[n,V] real positions of the probes in right-padded order, from a left-padded recording or from the long probe's start."""
    logits = bundle.array("logits", f"f32/{key}/logits")
    lengths = plan.probes.attention.sum(1, dtype=int)[:rows]
    left = key.endswith("left")
    return np.concatenate([row[-n:] if left else row[:n] for row, n in zip(logits, lengths, strict=True)])


def _rows(logits_PTV: np.ndarray, plan, rows: int) -> np.ndarray:
    return logits_PTV[:rows][plan.probes.attention[:rows] == 1]


def test_the_softcap_acts_once(judge, stacks, plan):
    """Final logits stay below the softcap, come close enough to it to show, and are capped exactly once."""
    judge.measure_in("largest difference of the logits", "full")
    for bundle in stacks:
        line = bundle.lines("logits", "softcap")[0]
        cap = plan.topology.softcap
        judge.same(f"{bundle.stack}, cap", line["cap"], cap)
        once = cap * np.tanh(line["pre_cap_max_abs"] / cap)
        judge.within(
            f"{bundle.stack}, capped once", abs(once - line["max_abs_logit"]), 1e-4, expected=once, got=line["max_abs_logit"]
        )
        twice = cap * np.tanh(once / cap)
        judge.above(f"{bundle.stack}, twice would show", once - twice, 0.1)


def test_the_streams_have_the_same_dtypes(judge, reference, port):
    """Streams, projections, norms and their arithmetic, logits, adapters and moments have the reference's dtype in every layer."""
    streams = [{(x["precision"], x["stream"]): x["dtype"] for x in b.lines("logits", "dtypes")} for b in (port, reference)]
    judge.same("streams", set(streams[0]), set(streams[1]))
    for key, dtype in streams[1].items():
        judge.same(" ".join(key), streams[0].get(key), dtype)


def test_the_adapter_changes_the_logits(judge, stacks, plan):
    """Control: warm and loud adapters move the logits, and the base fails where the warm model is expected."""
    for bundle in stacks:
        base, warm, loud = (real_logits(plan, bundle.array("logits", f"f32/{s}/logits")) for s in ("base", "warm", "loud"))
        judge.above(f"{bundle.stack}, warm", rms(wide(warm) - wide(base)), 0.01)
        judge.above(f"{bundle.stack}, loud", rms(wide(loud) - wide(base)), 0.1)


def test_a_step_of_precision_is_told_apart(judge, reference, plan, limits):
    """Control: bfloat16 logits, judged as float32, are over the limit by a factor of 100 at least."""
    for state in STATES:
        exact, single, half = (real_logits(plan, reference.array("logits", f"{p}/{state}/logits")) for p in ("f64", "f32", "bf16"))
        ratio = rms_error(half, exact) / (limits["arithmetic"].value * rms_error(single, exact))
        judge.above(f"{state}", ratio, 100)
