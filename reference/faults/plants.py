"""The table of the reference's plants: a name in the catalogue -> the words that are changed."""

from contextlib import AbstractContextManager

from conformance.contract.faults import Fault
from conformance.contract.seams import Edit, edited, one

DATA, TRAIN, MERGE, ADAPTER, MODEL = "reference.data", "reference.train", "reference.merge", "reference.adapter", "reference.model"
NOT_SHARDED = one("reference.sharding:use_sharding", "reach_fsdp_on_cpu()", "pass")
# The body of `write_whole` from its first line on.
WHOLE = """    partial = partial_of(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    for path in partial.rglob("*"):
        _sync(path)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    _sync(target.parent)
"""

EDITS: dict[str, tuple[Edit, ...]] = {
    # TRL's default: every token is a target.
    "loss over all": one(f"{DATA}:tokenise", 'assistant_only_loss=scope == "assistant"', "assistant_only_loss=False"),
    # The Trainer's default sampler draws an order of its own.
    "rows shuffled": one(
        f"{TRAIN}:ReferenceTrainer._get_train_sampler", "return SequentialSampler(", "return torch.utils.data.RandomSampler("
    ),
    "last step not filled": one(f"{DATA}:arrange", "for row in shard]", "for row in shard if row != EMPTY]"),
    "no rank stabilisation": one(f"{ADAPTER}:lora_config", "use_rslora=recipe.adapter.rslora", "use_rslora=False"),
    # TRL with Gemma4ForConditionalGeneration, which says accepts_loss_kwargs = False. The oracle's loss is not TRL's, and stays.
    "mean of micro-batch means": one(f"{TRAIN}:make_trainer", "token_weighted=token_weighted", 'token_weighted=run.precision == "f64"'),
    "eps": one(f"{TRAIN}:trainer_config", "adam_epsilon=optimizer.eps", "adam_epsilon=VALUE"),
    "data not skipped": one(f"{TRAIN}:trainer_config", "max_steps=", "ignore_data_skip=True, max_steps="),
    # The first process's rows in every process: inert in a single one, whose micro-batches have one shard.
    "first shard in every process": one(f"{DATA}:arrange", "for row in shard]", "for row in micro[0]]"),
    # transformers' default before 5: each process divides by its own targets.
    "own targets in every process": one(f"{TRAIN}:trainer_config", "max_steps=", "average_tokens_across_devices=False, max_steps="),
    # accelerate's list of distributed types that FSDP takes over leaves out several processes on CPUs.
    "not sharded on CPUs": NOT_SHARDED,
    # As transformers has it under DDP, where the second process's set of layer types happens to have another order.
    "buffers in another order": (
        *NOT_SHARDED,
        Edit(f"{MODEL}:order_buffers", "items())", "items(), reverse=__import__('os').environ.get('RANK') == '1')"),
    ),
    "saved in place": one("reference.saver:write_whole", WHOLE, "    target.mkdir(parents=True, exist_ok=True)\n    write(target)\n"),
    "read with another alpha": one(
        f"{ADAPTER}:load_adapter", "return PeftModel.from_pretrained(model, str(folder)).eval()",
        "found = PeftModel.from_pretrained(model, str(folder)).eval()\n"
        "        [layer.set_scale('default', VALUE) for layer in lora_layers(found).values()]\n        return found",
    ),
    "unloaded, not merged": one(f"{MERGE}:merged_weights", "model.merge_and_unload()", "model.unload()"),
}  # fmt: skip


def planted(fault: Fault) -> AbstractContextManager:
    return edited(EDITS[fault.plant], fault.value)
