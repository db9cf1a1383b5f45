"""Faults of the forward pass and of generation's cache."""

from conformance.contract.seams import Edit, one

TUNIX = "tunix.models.gemma4.model"
BLOCK, UNIT = "tpu_impl.attention:Attention.block", "tpu_impl.attention:unit"
LAYER, LOGITS = f"{TUNIX}:DecoderLayer.block", "tpu_impl.model:logits_of"
CONFIG_END = "dtype=DTYPES[precision], param_dtype=DTYPES[precision],"
ROUNDED = "jax.lax.reduce_precision(jax.nn.softmax(attn.astype(jnp.float32), axis=-1), 8, 7)"  # bfloat16's bits
CAPPED = "logits = jnp.tanh(logits) * self.config.final_logit_softcap"



def _config(field: str, old: str, new: str) -> tuple[Edit]:
    """Another value of one field of Tunix's config."""
    return one("tpu_impl.model:read_config", f"{field}={old},", f"{field}={new},")


def _added(field: str) -> tuple[Edit]:
    return one("tpu_impl.model:read_config", CONFIG_END, f"{CONFIG_END} {field}=VALUE,")


CONFIG = {
    "global rope proportion": _config(
        "global_rope_proportion", 'rope["full_attention"].get("partial_rotary_factor", 1.0)', "VALUE"
    ),
    "local rope proportion": _added("local_rope_proportion"),
    "local base": _config("local_base_frequency", 'rope["sliding_attention"]["rope_theta"]', "VALUE"),
    "global base": _config("global_base_frequency", 'rope["full_attention"]["rope_theta"]', "VALUE"),
    "global position scale": _added("global_scale_factor"),
    "local position scale": _added("local_scale_factor"),
    "window off by": _config("sliding_window_size", 'text["sliding_window"]', 'text["sliding_window"] + VALUE'),
    "softcap": _config("final_logit_softcap", 'text["final_logit_softcapping"]', "VALUE"),
}
FORWARD = {
    "softcap twice": one(f"{TUNIX}:Gemma4.__call__", CAPPED, f"{CAPPED}\n    {CAPPED.replace('(logits)', '(logits / 30)')}"),
    "norm eps": one(f"{TUNIX}:RMSNorm.__call__", "var + 1e-06", "var + VALUE"),
    "norm by one plus scale": one(f"{TUNIX}:RMSNorm.__call__", "normed_inputs * scale", "normed_inputs * (1 + scale)"),
    "norm in the stream's dtype": one(f"{TUNIX}:RMSNorm.__call__", "jnp.astype(x, jnp.float32)", "jnp.astype(x, self.dtype)"),
    "value norm eps": one(UNIT, "value_var + 1e-06", "value_var + VALUE"),
    "value not normed": one(UNIT, "values * jax.lax.rsqrt(value_var + 1e-06)", "values * 1"),
    "value from normed key": one(BLOCK, "value_proj = key_proj\n", "value_proj = self._key_norm(key_proj)\n"),
    "scores scaled": one(
        BLOCK, "attn = jnp.where((jnp.expand_dims(attn_mask, -2)), logits, K_MASK)",
        "attn = jnp.where((jnp.expand_dims(attn_mask, -2)), logits * self.head_dim**-0.5, K_MASK)",
    ),
    # Not a cast there and back: XLA leaves that out.
    "probabilities in bfloat16": one(BLOCK, "attn = jax.nn.softmax(attn.astype(jnp.float32), axis=-1)", f"attn = {ROUNDED}"),
    "sees the next token": one(LOGITS, ",) * 2, jnp.bool_)", ",) * 2, jnp.bool_), 1"),
    "padding seen": one(LOGITS, "& attended_BT[:, None, :]", "& (attended_BT | True)[:, None, :]"),
    "rope interleaved": one(
        f"{TUNIX}:apply_rope", "first_half, second_half = jnp.split(inputs, 2, axis=-1)",
        "first_half, second_half = inputs[..., ::2], inputs[..., 1::2]",
    ),
    "rope not padded": one(f"{TUNIX}:apply_rope", "(2.0 / head_dim)", "(1.0 / rope_angles)"),
    "positions in bfloat16": one(f"{TUNIX}:apply_rope", "jnp.newaxis] / timescale", "jnp.newaxis].astype(jnp.bfloat16) / timescale"),
    "positions in the stream's dtype": one(
        f"{TUNIX}:apply_rope", "jnp.newaxis] / timescale", "jnp.newaxis].astype(inputs.dtype) / timescale"
    ),
    "exact gelu": one(f"{TUNIX}:FeedForward.block", "nnx.gelu(self.gate_proj(x))", "nnx.gelu(self.gate_proj(x), approximate=False)"),
    "embedding scale in bfloat16": one(f"{TUNIX}:Embedder.encode", ".astype(x.dtype)", ".astype(jnp.bfloat16).astype(x.dtype)"),
    "embedding scale times": one(f"{TUNIX}:Embedder.encode", "jnp.sqrt(x.shape[-1])", "(VALUE * jnp.sqrt(x.shape[-1]))"),
    "layer scalar left out": one(LAYER, "ffw = ffw * self.skip_scale.value", "ffw = ffw * 1"),
    "layer scalar promotes": one(LAYER, "self.skip_scale.value", "self.skip_scale.value.astype(jnp.float32)"),
    "residual before post-norm": one(
        LAYER, "attn = self.post_attention_norm(attn)\n  attn += x", "attn += x\n  attn = self.post_attention_norm(attn)"
    ),
    "products in bfloat16": one(
        f"{TUNIX}:Einsum.__call__", "return jnp.einsum(self.einsum_str, x, w)",
        "return jnp.einsum(self.einsum_str, x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)).astype(self.dtype)",
    ),
    "a layer's adapter not loaded": one(
        "tpu_impl.adapter:set_adapter", "for tensor in lora_tensors(model):",
        'for tensor in (one for one in lora_tensors(model) if ".layers.VALUE." not in one.name):',
    ),
    "a weight's adapter not loaded": one(
        "tpu_impl.adapter:set_adapter", "for tensor in lora_tensors(model):",
        'for tensor in (one for one in lora_tensors(model) if ".layers.VALUE.mlp.up_proj" not in one.name):',
    ),
}  # fmt: skip
CACHE = {
    "ring cache off by": one(
        f"{TUNIX}:Attention.init_cache", "min(max_seq_len, self.config.sliding_window_size)",
        "min(max_seq_len, self.config.sliding_window_size + VALUE)",
    ),
}  # fmt: skip
EDITS = CONFIG | FORWARD | CACHE
