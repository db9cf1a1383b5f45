"""Faults of tokens, batches, weights and adapters."""

from conformance.contract.seams import Edit, one

DATA, MODEL, ADAPTER, LORA = "tpu_impl.data", "tpu_impl.model", "tpu_impl.adapter", "tpu_impl.lora"
UNCHECKED = Edit(f"{ADAPTER}:attach_adapter", "    check_adapted(adapted, recipe)\n", "")  # stock: nothing compares with the recipe
ROW_MADE = "TokenisedRow(row.row, ids[:limit], mask[:limit].astype(np.uint8))"
ROWS_TAKEN = "tuple(rows[row] for shard in micro for row in shard)"
RATES = "tuple(map(float, learning_rates))"
MAPPING = "pattern.replace(STOCK_PREFIX, prefix): rule"
GATE_AND_UP = '.replace("gate_", "other_").replace("up_", "gate_").replace("other_", "up_")'



def _row(new: str) -> tuple[Edit]:
    return one(f"{DATA}:_tokenised", ROW_MADE, f"TokenisedRow(row.row, {new}.astype(np.uint8))")


def _rates(new: str) -> tuple[Edit]:
    return one("tpu_impl.optimizer:recipe_chain", RATES, f"tuple(map(float, {new}))")


def _paths(old: str, new: str) -> tuple[Edit, Edit]:
    return Edit(f"{ADAPTER}:module_path", old, new), UNCHECKED


TOKENS = {
    "bos twice": one(f"{DATA}:_tokenised", "add_special_tokens=False", "add_special_tokens=True"),
    "no bos": _row("ids[1:limit], mask[1:limit]"),
    "row cut by a token": _row("ids[: len(ids) - (row.row == VALUE)], mask[: len(ids) - (row.row == VALUE)]"),
    "mask of a row shifted": _row("ids[:limit], np.roll(mask, int(row.row == VALUE))[:limit]"),
    "turn end not learnt": one(f"{DATA}:_turn_end", "len(whole.rstrip())", "0"),
    "generation prompt learnt": one(f"{DATA}:_answer_spans", "add_generation_prompt=True", "add_generation_prompt=False"),
    "prompt learnt": one(f"{DATA}:_tokenised", 'if scope == "all":', "if True:"),
    "row dropped": one(f"{DATA}:tokenise", "for row in plan.rows}", "for row in plan.rows[:-1]}"),
    "other template": one(
        f"{DATA}:load_tokenizer", "return AutoTokenizer.from_pretrained(folder)",
        "found = AutoTokenizer.from_pretrained(folder)\n    found.chat_template = '{# #}' + found.chat_template\n    return found",
    ),
    "one eos": one("tpu_impl.record_inputs:_eos_ids", "return ids if", "return ids[:1] if"),
}  # fmt: skip
BATCHES = {
    "steps swapped": one(
        f"{DATA}:arrange", "_micro_batches(rows, steps,", "_micro_batches(rows, [steps[1], steps[0], *steps[2:]],"
    ),
    "last step filled with first rows": one(
        f"{DATA}:_micro_batches", ROWS_TAKEN, ROWS_TAKEN.replace("rows[row]", "rows[plan.order[0] if row == EMPTY else row]")
    ),
    "first shard on every device": one(f"{DATA}:_micro_batches", ROWS_TAKEN, ROWS_TAKEN.replace("in shard", "in micro[0]")),
    "padding attended": one(f"{DATA}:collate", '["attended"][index, place]', '["attended"][index]'),
    "padded with eos": one(f"{DATA}:collate", "width), pad_id, np.int32)", "width), 1, np.int32)"),
    "loss weight shifted": one(f"{DATA}:collate", "= row.loss_mask", "= np.roll(row.loss_mask, 1)"),
    "empty rows count": one(f"{DATA}:empty_row", "np.zeros(1", "np.ones(1"),
    "rates times": _rates("VALUE * learning_rates"),
    "rates per micro-batch": _rates("learning_rates[np.minimum(np.arange(len(learning_rates)) * 2, len(learning_rates) - 1)]"),
    "rates a step early": _rates("[*learning_rates[1:], learning_rates[-1]]"),
    "a step per micro-batch": one("tpu_impl.optimizer:_accumulated", "transformation(), micro_batches)", "transformation(), 1)"),
}  # fmt: skip
WEIGHTS = {
    "gate and up swapped": one(f"{MODEL}:_key_mapping", MAPPING, MAPPING.replace(": rule", f"{GATE_AND_UP}: rule")),
    "layers swapped": one(
        f"{MODEL}:load_checkpoint", "    return watch(",
        "    model.layers[0], model.layers[1] = model.layers[1], model.layers[0]\n    return watch(",
    ),
    "heads not transposed": one("tpu_impl.layout:_heads", "value_NDH.swapaxes(1, 2)", "value_NDH"),
    "weights through float16": one(
        f"{MODEL}:load_checkpoint", "jnp.asarray(np.asarray(value))",
        "jnp.asarray(np.asarray(value).astype(np.float16).astype(value.dtype))",
    ),
    "layer scalar not loaded": one(f"{MODEL}:_key_mapping", "in mapping.items()}", 'in mapping.items() if "scalar" not in pattern}'),
    "unknown tensor skipped": one(f"{MODEL}:check_tensors", "if extra:", "if False:"),
}  # fmt: skip
ADAPTERS = {
    "a projection not adapted": _paths("in recipe.adapter.targets]", 'in recipe.adapter.targets and short != "mlp.up_proj"]'),
    "a layer not adapted": _paths(r"layers/\d+/(", r"layers/(?!VALUE/)\d+/("),
    "attention not adapted": _paths("for name in names)", "for name in names if 'mlp' in name)"),
    "no path matches": one(f"{ADAPTER}:module_path", r"layers/\d+/(", r"blocks/\d+/("),
    "rank off": one(f"{LORA}:provider", "rank=adapter.rank", "rank=adapter.rank + VALUE"),
    "alpha times": one(f"{LORA}:provider", "alpha=alpha", "alpha=alpha * VALUE"),
    "raw alpha": one(f"{LORA}:provider", "alpha=alpha", "alpha=alpha * adapter.rank"),
    "spread of a times": one(f"{LORA}:pefts_a", "bound = ", "bound = VALUE * "),
    "b starts as a": one(
        f"{LORA}:provider", '{"lora_a_initializer": pefts_a}', '{f"lora_{side}_initializer": pefts_a for side in "ab"}'
    ),
    "one seed": one(f"{ADAPTER}:own_init", "jax.random.key(seed,", "jax.random.key(0,"),
    "a frozen weight decays": one(
        "tpu_impl.train:Trainer._step", "    return loss, None,",
        "    norm = self.model.final_norm.scale\n    norm.set_value(norm[...] * (1 - VALUE))\n    return loss, None,",
    ),
}  # fmt: skip
EDITS = TOKENS | BATCHES | WEIGHTS | ADAPTERS
