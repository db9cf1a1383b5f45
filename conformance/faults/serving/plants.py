"""The table of plants: a name in the catalogue -> the words that are changed."""

from contextlib import AbstractContextManager

from conformance.contract.faults import Fault
from conformance.contract.seams import Edit, edited, one

API, COMMAND, RECORDER = (f"conformance.contract.serving.{name}" for name in ("api", "command", "recorder"))
BENCH = "conformance.bench"
BODY, COMPLETE = f"{BENCH}.client:_body", f"{API}:Api.complete"
START, MERGED = f"{RECORDER}:start_merged", "    with start(bundle.folder(MERGED), None) as up:\n        yield up\n"
SENT = "await self._exchange(self._bodies[index], stream, events)"
WARMED = """self._warm_up(cell, running, warm_up)
    load = cell.load(self.tokens)
    before = settled_counters(running.target.url)
    if running.watch:
        running.watch.mark()
    run = _measured(running, load, self.limits)
"""

SERVER: dict[str, tuple[Edit, ...]] = {
    # Asked otherwise than the rung says: the server is the right one.
    "prompt as text": one(COMPLETE, '{"prompt": sent,', '{"prompt": self._post("/detokenize", {"tokens": sent})["prompt"],'),
    "eos ignored": one(COMPLETE, '"temperature": 0,', '"temperature": 0, "ignore_eos": True,'),
    "sampled": one(COMPLETE, '"temperature": 0,', '"temperature": 1, "seed": 0,'),
    "bos on top of the template's": one(f"{API}:Api.chat_ids", '"max_tokens": 1,', '"max_tokens": 1, "add_special_tokens": True,'),
    "no generation prompt": one(f"{API}:Api.tokenized", '"add_generation_prompt": True', '"add_generation_prompt": False'),
    # Another server.
    "base served": one(START, "start(bundle.folder(MERGED), None)", "start(plan.recipe.checkpoint_dir, None)"),
    "unmerged adapter served": one(
        START, MERGED,
        "    with start(plan.recipe.checkpoint_dir, bundle.folder(ADAPTER)) as up:\n"
        "        yield Served(up.server, up.api.named(ADAPTER_NAME), up.manifest)\n",
    ),
    "another template served": one(
        START, MERGED,
        "    from conformance.faults.serving.server import with_another_template\n"
        "    with with_another_template(bundle.folder(MERGED)) as folder, start(folder, None) as up:\n        yield up\n",
    ),
    "bfloat16": one(f"{COMMAND}:settings_of", "dtype=options.dtype or platform.dtype", 'dtype="bfloat16"'),
    "prefix caching": one(f"{COMMAND}:settings_of", "prefix_caching=options.prefix_caching", "prefix_caching=True"),
}  # fmt: skip
CLIENT: dict[str, tuple[Edit, ...]] = {
    "empty text is a token": one(f"{BENCH}.events:Record.first_token_ns", "strict=True) if characters)", "strict=True))"),
    "tokens are chunks": one(f"{BENCH}.figures:tpot_ms", "record.usage_completion_tokens - 1", "len(record.chunk_ns) - 1"),
    "latency from the send": one(f"{BENCH}.figures:ttft_ms", "record.scheduled_ns", "record.sent_ns"),
    # What httpx's aiter_lines does.
    "lines of Unicode": one(
        f"{BENCH}.sse:Stream.feed", '*lines, self._rest = (self._rest + data).split(b"\\n")\n',
        'whole, _, self._rest = (self._rest + data).rpartition(b"\\n")\n'
        "    lines = [line.encode() for line in whole.decode().splitlines()]\n",
    ),
    "failed replies averaged in": one(
        f"{BENCH}.events:whole", "record.outcome == OK", "record.usage_completion_tokens and record.first_token_ns"
    ),
    "sent again": one(
        f"{BENCH}.client:_Run._request", SENT, f'{SENT}\n            if events["status"] != 200:\n                {SENT}'
    ),
    "dispatch lag not judged": one(f"{BENCH}.lag:Lag._problems", 'READ if self.is_burst else (*READ, "dispatch")', "READ"),
    "eos ends replies": one(BODY, '{"ignore_eos": True} if load', "{} if load"),
    "one prompt for all": one(BODY, "prompt.tolist()", "load.prompts[0].tolist()"),
    "warm-up left in": one(
        f"{BENCH}.sweep:Sweep._measure", WARMED,
        WARMED.replace(
            "self._warm_up(cell, running, warm_up)", "warm = _measured(running, cell.warm_up(self.tokens, warm_up), self.limits)"
        )
        + "    from dataclasses import replace\n    run = replace(run, records=(*warm.records, *run.records))\n",
    ),
}  # fmt: skip
SWEEP: dict[str, tuple[Edit, ...]] = {
    "prompts of one seed": one(f"{BENCH}.prompts:draw_prompts", 'philox("prompts", seed,', 'philox("prompts", 0,'),
    "saturation not seen": one(f"{BENCH}.sweep:is_saturated", "< HELD *", "< 0.01 * HELD *"),
    "latency of saturated cells": one(f"{BENCH}.comparison:_ratio", "if metric.is_latency:", "if False:"),
    "any output lengths": one(f"{BENCH}.comparison:length_problems", "if not 1 - LENGTH_SHARE <= found", "if not 0 <= found"),
    "any settings": one(f"{BENCH}.comparison:_servers", "if one.is_decisive", "if False"),
}  # fmt: skip
EDITS = SERVER | CLIENT | SWEEP


def planted(fault: Fault) -> AbstractContextManager:
    return edited(EDITS[fault.plant], fault.value)
