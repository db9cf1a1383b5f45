"""Rung serving: each stack's merged checkpoint through a vLLM server, against the stack's own recordings and the reference's."""

from collections.abc import Iterator

import numpy as np

from conformance.compare import wide
from conformance.contract.bundle import Bundle
from conformance.contract.choices import END, stop_reason
from conformance.contract.serving.identity import merged_digests, recorded_logprobs
from conformance.contract.serving.manifest import DECISIVE
from conformance.test_generation import ids as generated
from conformance.test_generation import logit_error

MODES = ("alone", "together")  # one request after the other, and all at the same time
PRECISIONS = {"float32": ("f32", "f64"), "bfloat16": ("bf16", "f32")}  # a server's dtype -> its precision, and the next higher
DIFFERENCE = "largest difference of a log-probability"


def served(bundle: Bundle, key: str) -> np.ndarray:
    return np.asarray(bundle.array("serving", key))


def settings(bundle: Bundle, serves: str = "merged") -> dict[str, str]:
    return {line["setting"]: line["value"] for line in bundle.lines("serving", "server") if line["serves"] == serves}


def precisions(bundle: Bundle) -> tuple[str, str]:
    return PRECISIONS[settings(bundle)["dtype"]]


def logprob_limit(bundle: Bundle, reference: Bundle, plan, limits) -> float:
    return limits["exchange"].value * logit_error(reference, plan, *precisions(bundle))


def test_the_merged_files_are_served(judge, stacks):
    """What the server loaded is the stack's own merged checkpoint, by the sha256 of every shard."""
    for bundle in stacks:
        found = {line["file"]: line["sha256"] for line in bundle.lines("serving", "weights") if line["serves"] == "merged"}
        judge.same(f"{bundle.stack}, shards", set(found), set(merged_digests(bundle)))
        for file, digest in merged_digests(bundle).items():
            judge.same(f"{bundle.stack}, {file}", found.get(file), digest)


def test_both_servers_are_set_alike(judge, reference, port):
    """Model length, dtypes, batching, quantisation and prefix caching are the same on both sides, as set and as read back."""
    mine, theirs = settings(port), settings(reference)
    for name in DECISIVE:
        judge.same(name, mine.get(name), theirs.get(name))


def test_the_prompt_is_counted_as_sent(judge, stacks):
    """The server says that it was given the ids that were sent, and counts as many; nothing is added or encoded again."""
    for bundle in stacks:
        for line in bundle.lines("serving", "reply"):
            where = f"{bundle.stack}, {line['of']}, prompt {line['prompt']}"
            judge.same(where, line["prompt_tokens"], line["sent_tokens"])
            judge.same(f"{where}, ids", line["same_prompt_ids"], True)


def test_served_choices_follow_the_token_rule(judge, stacks, reference, plan, limits):
    """Forced on the stack's own float32 ids, the server's choice differs only where two tokens are nearly tied."""
    for bundle in stacks:
        chosen, gap = generated(bundle, "f32"), wide(bundle.array("generation", "f32/top2_gap"))
        tie = limits["token_gap"].value * logit_error(reference, plan, *precisions(bundle))
        differ = (served(bundle, "forced/argmax") != chosen) & (chosen != END)
        for prompt in range(len(chosen)):
            count = int((differ & (gap > tie))[prompt].sum())
            judge.same(f"{bundle.stack}, prompt {prompt}, other choices without a tie", count, 0)
        _many_ties(judge, bundle, float(differ.sum() / (chosen != END).sum()), tie, limits)


def test_served_tokens_are_the_references(judge, stacks, reference, plan, limits):
    """Greedy tokens through the server are the reference's own, alone and together, up to a place where two are nearly tied."""
    expected, gap = generated(reference, "f32"), wide(reference.array("generation", "f32/top2_gap"))
    for bundle in stacks:
        tie, swapped = limits["token_gap"].value * logit_error(reference, plan, *precisions(bundle)), 0
        for mode in MODES:
            found = served(bundle, f"{mode}/ids")
            for prompt, (got, row) in enumerate(zip(found, expected, strict=True)):
                is_tied = got.shape == row.shape and _parts_at_a_tie(got, row, gap[prompt], tie)
                swapped += is_tied
                judge.same(f"{bundle.stack}, {mode}, prompt {prompt}", row if is_tied else got, row)
        _many_ties(judge, bundle, swapped / (len(MODES) * len(expected)), tie, limits)


def _parts_at_a_tie(got: np.ndarray, expected: np.ndarray, gap: np.ndarray, tie: float) -> bool:
    """Behind the first other token the two texts can't be compared any more."""
    unequal = np.flatnonzero(got != expected)
    return bool(len(unequal)) and expected[unequal[0]] != END and gap[unequal[0]] <= tie


def _many_ties(judge, bundle: Bundle, share: float, tie: float, limits) -> None:
    if share > limits["token_swaps"].value:
        judge.inconclusive = f"{bundle.stack}: {share:.1%} were swapped near a tie (gap up to {tie:.3g})"


def test_served_log_probabilities_agree(judge, stacks, reference, plan, limits):
    """The server's log-probability of every token of the stack's own text is the stack's own, to the logits' own error."""
    judge.measure_in(DIFFERENCE)
    for bundle in stacks:
        limit, precision = logprob_limit(bundle, reference, plan, limits), precisions(bundle)[0]
        own, expected = generated(bundle, "f32"), wide(bundle.array("generation", "f32/logprobs"))
        for mode in ("forced", *MODES) if precision == "f32" else ("forced",):  # another text weighs otherwise
            found = wide(served(bundle, f"{mode}/logprobs"))
            for prompt, is_own in enumerate(_same_so_far(bundle, mode, own)):
                worst = np.abs(found - expected)[prompt][is_own].max(initial=0)
                judge.within(f"{bundle.stack}, {mode}, prompt {prompt}", worst, limit)


def _same_so_far(bundle: Bundle, mode: str, own_GK: np.ndarray) -> Iterator[np.ndarray]:
    """bool [K] a prompt: tokens of the stack's own text that the server's text has too, up to the first other one."""
    found_GK = own_GK if mode == "forced" else served(bundle, f"{mode}/ids")
    for found, own in zip(found_GK, own_GK, strict=True):
        yield (np.cumsum(found != own) == 0) & (own != END)


def test_served_prompt_log_probabilities_agree(judge, stacks, reference, plan, limits):
    """The server's log-probability of every token of the probes, sent as prompts, is that of the merged model in the stack."""
    judge.measure_in(DIFFERENCE)
    for bundle in stacks:
        limit = logprob_limit(bundle, reference, plan, limits)
        expected = wide(recorded_logprobs(bundle, plan, "merge", "trained/merged/logits"))
        for mode in MODES:
            off = np.abs(wide(served(bundle, f"{mode}/probe_logprobs")) - expected)
            for probe, worst in enumerate(off.max(1)):
                judge.within(f"{bundle.stack}, {mode}, probe {probe}", worst, limit)


def test_a_full_batch_changes_nothing(judge, stacks, reference, plan, limits):
    """All prompts at the same time give the tokens that each gives alone, with their log-probabilities."""
    for bundle in stacks:
        limit = logprob_limit(bundle, reference, plan, limits)
        alone, together = (served(bundle, f"{mode}/ids") for mode in MODES)
        judge.same(f"{bundle.stack}, tokens", together, alone)
        for key in ("logprobs", "probe_logprobs"):
            a, b = (wide(served(bundle, f"{mode}/{key}")) for mode in MODES)
            judge.within(f"{bundle.stack}, {key}", np.abs(a - b).max(), limit)


def test_the_chat_path_makes_the_trainings_ids(judge, stacks, plan):
    """A conversation that is sent as chat messages becomes the ids of the template that the model was trained with."""
    for bundle in stacks:
        for path, prompt, ids in _chats(bundle, plan):
            judge.same(f"{bundle.stack}, {path}, prompt {prompt}", ids, plan.prompts[prompt].tolist())


def test_the_chat_path_has_one_bos(judge, stacks, plan):
    """A conversation that is sent as chat messages begins with exactly one BOS."""
    for bundle in stacks:
        for path, prompt, ids in _chats(bundle, plan):
            judge.same(f"{bundle.stack}, {path}, prompt {prompt}", [i for i, id_ in enumerate(ids) if id_ == plan.bos_id], [0])


def _chats(bundle: Bundle, plan) -> list[tuple[str, int, list[int]]]:
    """(path, prompt, ids) of every prompt by both paths; a missing one is no ids."""
    found = {(line["path"], line["prompt"]): line["ids"] for line in bundle.lines("serving", "chat")}
    return [(path, prompt, found.get((path, prompt), [])) for path in ("chat", "tokenize") for prompt in range(len(plan.prompts))]


def test_replies_stop_at_eos(judge, stacks, plan):
    """A reply ends with the first EOS, says `stop` there and `length` otherwise, and counts its tokens with the EOS."""
    for bundle in stacks:
        replies = {(line["of"], line["prompt"]): line for line in bundle.lines("serving", "reply")}
        for mode in MODES:
            for prompt, row in enumerate(served(bundle, f"{mode}/ids")):
                written = row[row != END]
                reason, count = stop_reason(row, plan) if len(written) else ("nothing", 0)
                line, where = replies[mode, prompt], f"{bundle.stack}, {mode}, prompt {prompt}"
                judge.same(f"{where}, reason", line["finish_reason"], {"eos": "stop"}.get(reason, reason))
                judge.same(f"{where}, tokens", line["completion_tokens"], count)
                judge.same(f"{where}, tokens behind an EOS", int(np.isin(written[:-1], plan.eos_ids).sum()), 0)
                judge.same(f"{where}, full length", reason != "length" or count == plan.max_new_tokens, True)


def test_the_base_is_told_apart(judge, stacks, reference, plan, limits):
    """Control: the base model through the same server is over the limit of the probes' log-probabilities, and writes other text."""
    _judge_control(judge, "control.base", stacks, reference, plan, limits)


def test_unmerged_adapters_are_told_apart(judge, stacks, reference, plan, limits):
    """Control: so is the base with the adapter beside it: vLLM adds K's delta to K only, where V is K's copy."""
    _judge_control(judge, "control.adapter", stacks, reference, plan, limits)


def _judge_control(judge, control: str, stacks, reference, plan, limits) -> None:
    for bundle in stacks:
        expected = wide(recorded_logprobs(bundle, plan, "merge", "trained/merged/logits"))
        off = np.abs(wide(served(bundle, f"{control}/probe_logprobs")) - expected).max()
        judge.above(f"{bundle.stack}, log-probabilities of the probes", off, logprob_limit(bundle, reference, plan, limits))
        other = int((served(bundle, f"{control}/ids") != generated(bundle, "f32")).any(1).sum())
        judge.at_least(f"{bundle.stack}, prompts that go on otherwise", other, 1)
