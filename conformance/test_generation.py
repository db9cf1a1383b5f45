"""Rung generation: greedy continuation of 16 prompts by the merged model, token by token."""

from collections import Counter

import numpy as np

from conformance.compare import real_logits, wide
from conformance.contract.bundle import Bundle

LEAST_ENDINGS = 4  # of 16 prompts: by EOS, and by length


def ids(bundle: Bundle, key: str) -> np.ndarray:
    return np.asarray(bundle.array("generation", f"{key}/ids"))


def test_float32_tokens_are_equal(judge, reference, port):
    """Greedy generation in float32 gives the same tokens and stops at the same one, for every prompt."""
    mine, theirs = ids(port, "f32"), ids(reference, "f32")
    for prompt, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        judge.same(f"prompt {prompt}", a, b)


def test_log_probabilities_agree(judge, reference, exchanged, plan, limits):
    """On the reference's merged files and ids, the port's log-probability of every token agrees to the logits' own error."""
    judge.measure_in("largest difference of a log-probability")
    limit = limits["exchange"].value * logit_error(reference, plan, "f32", "f64")
    mine, theirs = wide(exchanged[1]["forced/f32/logprobs"]), wide(reference.array("generation", "f32/logprobs"))
    written = ids(reference, "f32") >= 0
    for prompt in range(len(mine)):
        judge.within(f"prompt {prompt}", np.abs(mine - theirs)[prompt][written[prompt]].max(), limit)


def logit_error(reference: Bundle, plan, precision: str, truth: str) -> float:
    """Largest error of a recorded logit of the warm model."""
    a, b = (wide(real_logits(plan, reference.array("logits", f"{p}/warm/logits"))) for p in (precision, truth))
    return float(np.abs(a - b).max())


def test_the_cache_changes_nothing(judge, stacks):
    """Generation with the key-value cache gives the tokens of generation without it."""
    for bundle in stacks:
        judge.same(bundle.stack, ids(bundle, "f32"), ids(bundle, "f32.nocache"))


def test_the_cache_keeps_the_log_probabilities(judge, reference, stacks, plan, limits):
    """Each token's log-probability with the key-value cache is that of one forward pass over the same ids, in each stack."""
    judge.measure_in("largest difference of a log-probability")
    limit = limits["exchange"].value * logit_error(reference, plan, "f32", "f64")
    for bundle in stacks:
        written = ids(bundle, "f32") >= 0
        cached, whole = (wide(bundle.array("generation", f"f32/{key}")) for key in ("logprobs", "forced_logprobs"))
        for prompt in range(len(written)):
            judge.within(f"{bundle.stack}, prompt {prompt}", np.abs(cached - whole)[prompt][written[prompt]].max(initial=0), limit)


def test_prompts_stop_in_both_ways(judge, stacks):
    """At least 4 prompts end by EOS and at least 4 by length, in both stacks at the same token."""
    for bundle in stacks:
        reasons = Counter(x["reason"] for x in bundle.lines("generation", "stops") if x["precision"] == "f32")
        for reason in ("eos", "length"):
            judge.above(f"{bundle.stack}, {reason}", reasons[reason], LEAST_ENDINGS)


def test_stops_are_equal(judge, reference, port):
    """Every prompt stops for the same reason after the same number of tokens."""
    stops = [
        {x["prompt"]: (x["reason"], x["new_tokens"]) for x in b.lines("generation", "stops") if x["precision"] == "f32"}
        for b in (port, reference)
    ]
    for prompt, stop in stops[1].items():
        judge.same(f"prompt {prompt}", stops[0].get(prompt), stop)


def test_float32_choices_follow_the_token_rule(judge, reference, exchanged, plan, limits):
    """In float32, forced on the reference's ids, the port's choice differs only where two tokens are nearly tied."""
    _judge_choices(judge, reference, exchanged[1], plan, limits, ("f32", "f64"))


def test_bfloat16_choices_follow_the_token_rule(judge, reference, exchanged, plan, limits):
    """In bfloat16, forced on the reference's ids, the port's choice differs only where two tokens are nearly tied."""
    _judge_choices(judge, reference, exchanged[1], plan, limits, ("bf16", "f32"))


def _judge_choices(judge, reference, forced, plan, limits, precisions: tuple[str, str]) -> None:
    """Excused: positions whose top-2 gap is at most twice the largest logit error of `precisions[0]`; too many decide nothing."""
    chosen, gap = ids(reference, "f32"), wide(reference.array("generation", "f32/top2_gap"))
    tie = limits["token_gap"].value * logit_error(reference, plan, *precisions)
    differ = (forced[f"forced/{precisions[0]}/argmax"] != chosen) & (chosen >= 0)
    for prompt in range(len(chosen)):
        judge.same(f"prompt {prompt}, other choices without a tie", int((differ & (gap > tie))[prompt].sum()), 0)
    swapped = float(differ.sum() / (chosen >= 0).sum())
    if swapped > limits["token_swaps"].value:
        judge.inconclusive = f"{swapped:.1%} of choices were swapped near a tie (gap up to {tie:.3g})"


def test_the_base_generates_otherwise(judge, stacks, plan):
    """Control: prompts continue differently from each other, so a constant output cannot pass."""
    for bundle in stacks:
        distinct = {tuple(row) for row in ids(bundle, "f32").tolist()}
        judge.at_least(f"{bundle.stack}, distinct continuations", len(distinct), 8)
