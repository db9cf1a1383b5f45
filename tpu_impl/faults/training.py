"""Faults of gradients, optimizer, single steps and whole runs."""

from conformance.contract.seams import Edit, one

OPTIMIZER, STEP, TRAIN = "tpu_impl.optimizer", "tpu_impl.step", "tpu_impl.train"
CLIP, ADAM, TABLES = f"{OPTIMIZER}:clip_as_torch", f"{OPTIMIZER}:adamw_as_torch", f"{OPTIMIZER}:_tables"
BLOCK = "tpu_impl.attention:Attention.block"
BETA2 = "optimizer.beta2 * v + (1 - optimizer.beta2) * jnp.square(g)"
ROOT = "jnp.sqrt(v) / root + optimizer.eps"
MOMENTS = "AdamState(state.count + 1, m, v, rate)"
FIRST = "m = jax.tree.map(lambda g, m:"
STEP_END = "    return loss, None,"



def _gradients(changed: str) -> tuple[Edit]:
    return one(f"{STEP}:loss_and_gradients", "as_annotated(grads)", f"as_annotated(jax.tree.map(lambda grad: {changed}, grads))")


def _after_step(line: str) -> tuple[Edit]:
    return one(f"{TRAIN}:Trainer._step", STEP_END, f"    {line}\n{STEP_END}")


GRADIENTS = {
    "loss times accumulation": one("tpu_impl.data:_batch", "micro.accumulation / micro", "micro.accumulation**2 / micro"),
    "targets shifted": one(f"{STEP}:token_loss", "loss_weight[:, 1:]", "loss_weight[:, :-1]"),
    "gradients times": _gradients("VALUE * grad"),
    "gradients in bfloat16": _gradients("grad.astype(jnp.bfloat16).astype(grad.dtype)"),
    "keys have no gradient": one(BLOCK, "self._key_norm(key_proj)", "self._key_norm(jax.lax.stop_gradient(key_proj))"),
    "softcap has no gradient": one(
        "tunix.models.gemma4.model:Gemma4.__call__", "jnp.tanh(logits) * self.config.final_logit_softcap",
        "logits * 30 + jax.lax.stop_gradient(jnp.tanh(logits) * 30 - logits * 30)",
    ),
    "rematerialised otherwise": one(
        "tpu_impl.taps:_remat_ours", "gemma4.DecoderLayer.block,",
        "lambda layer, x, *more, **named: gemma4.DecoderLayer.block(layer, x * VALUE, *more, **named),",
    ),
}  # fmt: skip
OPTIMIZERS = {
    "clip eps": one(CLIP, "(norm + CLIP_EPS)", "(norm + VALUE)"),
    "clip norm times": one(CLIP, "clip_norm / (norm", "VALUE * clip_norm / (norm"),
    "clip per tensor": one(CLIP, "grad * factor", "grad * jnp.minimum(1.0, (clip_norm or 1e9) / (optax.global_norm(grad) + CLIP_EPS))"),
    "not clipped": one(CLIP, "jnp.ones_like(norm) if clip_norm is None else", "jnp.ones_like(norm) if True else"),
    "beta1": one(ADAM, "(1 - optimizer.beta1)", "(1 - VALUE)"),
    "beta2": one(ADAM, BETA2, BETA2.replace("optimizer.beta2", "VALUE")),
    "eps": one(ADAM, ROOT, ROOT.replace("optimizer.eps", "VALUE")),
    "eps inside the root": one(ADAM, ROOT, "jnp.sqrt(v / root**2 + optimizer.eps)"),
    "weight decay": one(TABLES, "chain.optimizer.weight_decay", "VALUE"),
    "decay in the gradient": one(
        ADAM, FIRST, f"grads = jax.tree.map(lambda g, p: g + optimizer.weight_decay * p, grads, params)\n        {FIRST}"
    ),
    "no bias correction": one(TABLES, "(1 - beta**step for beta in", "(1 - 0 * beta**step for beta in"),
    "count off by one": one(TABLES, "np.arange(1, len(chain.learning_rates) + 1)", "np.arange(2, len(chain.learning_rates) + 2)"),
    "rate not as shown": one(TABLES, "rate / c1", "VALUE * rate / c1"),
    "moments in bfloat16": one(
        ADAM, MOMENTS, MOMENTS.replace("m, v", "*jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(x.dtype), (m, v))")
    ),
}  # fmt: skip
STEPS = {
    "accumulation summed": one(f"{OPTIMIZER}:_accumulated", "micro_batches)", "micro_batches, use_grad_mean=False)"),
    "last micro-batch only": one(
        f"{OPTIMIZER}:_accumulated", "return optax.MultiSteps(chain.transformation(), micro_batches)",
        "found = optax.MultiSteps(chain.transformation(), micro_batches)\n"
        "    found._acc_update = lambda grad, acc, *, n_acc: grad\n    return found",
    ),
}  # fmt: skip
RUNS = {
    "state lost between micro-batches": _after_step("held[1].write(jax.tree.map(lambda leaf: leaf * (leaf.ndim == 0), moved[1]))"),
    "adapters rounded to bfloat16": _after_step(
        "held[0].write(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(leaf.dtype), moved[0]))"
    ),
    "adapters decay beside the optimizer": _after_step("held[0].write(jax.tree.map(lambda leaf: leaf * VALUE, moved[0]))"),
    "no dropout": one("tpu_impl.lora:dropout_key", "None if seed is None", "None if True"),
    "one dropout seed": one("tpu_impl.data:_batch", "np.uint32(dropout_seed)", "np.uint32(0)"),
}
EDITS = GRADIENTS | OPTIMIZERS | STEPS | RUNS
