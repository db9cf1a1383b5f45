"""Where the stock Tunix/Qwix/optax path departs from the recipe, one switch each; off means: as the stock does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corrections:
    """Every switch is on in the port. The file that holds the correction says what the stock does there."""

    both_prefixes: bool = True  # model.py: names without `language_model.` load too
    split_kv: bool = True  # adapter.py: K and V have an adapter each
    peft_init: bool = True  # adapter.py: A uniform in ±1/sqrt(fan_in)
    float32_adapters: bool = True  # adapter.py: whatever the base's dtype
    rslora: bool = True  # adapter.py: alpha / sqrt(r) where the recipe asks for it
    stream_dtype: bool = True  # lora.py: a float32 adapter leaves the stream's dtype alone
    counted_dropout: bool = True  # lora.py: masks from (seed, micro-batch, weight), off in evaluation
    remat_after_lora: bool = True  # adapter.py: rematerialisation is set once the adapters exist
    token_weighted: bool = True  # data.py: a micro-batch weighs as its tokens
    full_last_step: bool = True  # data.py: empty rows complete the last step
    rate_table: bool = True  # optimizer.py: the contract's float32 learning rates
    torch_clip: bool = True  # optimizer.py: clip / (norm + 1e-6)
    torch_adamw: bool = True  # optimizer.py: bias correction in float64
    float32_values: bool = True  # attention.py: values are normed in float32
    logits_dtype: bool = True  # model.py: logits have the stream's dtype
    split_by_rule: bool = True  # sharding.py: every variable split as the contract says, by a rule that fits the mesh
    constrained_streams: bool = True  # sharding.py: activations lie where Tunix asks, on CPUs too, where the axis divides
    whole_rows: bool = True  # train.py: rows that a mesh does not divide are refused
    whole_metadata: bool = True  # train.py: the last checkpoint carries the data position too


ALL = Corrections()
