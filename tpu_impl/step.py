"""Single optimizer steps through the trainer's own functions: gradients, one warm step, the optimizer chain on given gradients."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from conformance.contract.draws import Tensors, WarmState
from conformance.contract.optimizer_cases import OptimizerCase
from conformance.contract.recipe import Recipe
from tpu_impl.data import Batch
from tpu_impl.layout import from_hub, lora_tensors
from tpu_impl.lora import dropout_key
from tpu_impl.model import logits_of
from tpu_impl.optimizer import AdamState, Chain, ClipState, part_of, recipe_chain
from tpu_impl.sharding import as_annotated, constrain, place_rows

MOMENTS = ("m", "v")


def token_loss(
    model, input_tokens, attended, positions, loss_weight, dropout_seed=None, dropout_step=None
) -> jax.Array:  # fmt: skip
    """Sum over targets of loss_weight x negative log-likelihood; all [B,T], token t predicted from those before it."""
    with dropout_key(dropout_seed, dropout_step):
        logits_BTV = logits_of(model, input_tokens, attended, positions)[:, :-1].astype(jnp.float32)
    likelihood_BT = jnp.take_along_axis(jax.nn.log_softmax(logits_BTV), input_tokens[:, 1:, None], -1)[..., 0]
    return -jnp.sum(likelihood_BT * loss_weight[:, 1:])


@functools.partial(jax.jit, static_argnums=0)
def batch_loss(graphdef, state, batch: Batch) -> jax.Array:
    return token_loss(nnx.merge(graphdef, state), **batch)


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradients(graphdef, lora, frozen, batch: Batch):
    """(loss, gradients in the adapters' structure) of one micro-batch; the frozen weights are not copied out.

    Stock: PeftTrainer's jitted step returns the whole model, +14.5 GiB a device at 31B.
    """
    loss, grads = jax.value_and_grad(lambda lora: token_loss(nnx.merge(graphdef, lora, frozen), **batch))(lora)
    return loss, as_annotated(grads)


@functools.partial(jax.jit, static_argnums=(0, 4))
def apply_gradients(transformation, params, opt_state, grads, shardings=None):
    """(parameters, optimizer state) after one micro-batch's gradients; on a mesh they stay where `shardings` says."""
    updates, opt_state = transformation.update(grads, opt_state, params)
    return constrain((optax.apply_updates(params, updates), opt_state), shardings)


@dataclass(frozen=True, slots=True)
class StepGradients:
    """One optimizer step's loss, global gradient norm before clipping, and gradients by tensor name."""

    loss: float
    grad_norm: float
    gradients: Tensors


def step_gradients(model, batches: list[Batch]) -> StepGradients:
    """Forward and backward of one optimizer step, its micro-batches averaged as MultiSteps averages them."""
    graphdef, lora, frozen = nnx.split(model, nnx.LoRAParam, ...)
    losses, mean = [], None
    for count, batch in enumerate(batches):
        # Waited for: on several processes' CPU devices a sum over devices that starts behind many small programs waits for ever.
        loss, grads = jax.block_until_ready(loss_and_gradients(graphdef, lora, frozen, place_rows(batch)))
        losses.append(np.float32(loss))
        mean = jax.block_until_ready(_running_mean(mean, count, grads))
    return StepGradients(float(np.mean(losses)), float(_global_norm(mean)), named(model, mean))


_global_norm = jax.jit(optax.global_norm)


def _running_mean(mean, count: int, grads):
    return grads if mean is None else jax.tree.map(lambda old, new: old + (new - old) / (count + 1), mean, grads)


def named(model, state) -> Tensors:
    """A state with the adapters' structure (gradients, a moment) by tensor name in PEFT's layout."""
    return {tensor.name: tensor.read(value) for tensor, value in zip(lora_tensors(model), jax.tree.leaves(state), strict=True)}


def structured(model, tensors: Tensors):
    """The other way: named tensors in the adapters' structure."""
    structure = jax.tree.structure(nnx.as_pure(nnx.state(model, nnx.LoRAParam)))
    values = [jnp.asarray(from_hub(tensor.variable, tensors[tensor.name])) for tensor in lora_tensors(model)]
    return jax.tree.unflatten(structure, values)


def warm_step(model, recipe: Recipe, warm: WarmState, rates: np.ndarray, batches: list[Batch]) -> tuple[Tensors, float]:
    """One optimizer step from the warm state, already set in `model`: every adapter tensor, its `.m` and its `.v` after it;
    and the global gradient norm that the chain met, before clipping."""
    transformation = recipe_chain(recipe, rates).accumulated(len(batches))
    graphdef, lora, frozen = nnx.split(model, nnx.LoRAParam, ...)
    params = nnx.as_pure(lora)
    state = set_moments(transformation.init(params), structured(model, warm.m), structured(model, warm.v), warm.step)
    for batch in batches:
        _, grads = jax.block_until_ready(loss_and_gradients(graphdef, lora, frozen, place_rows(batch)))
        params, state = jax.block_until_ready(apply_gradients(transformation, params, state, nnx.as_pure(grads)))
    moments = {moment: named(model, getattr(part_of(state, AdamState), moment)) for moment in MOMENTS}
    moved = named(model, params) | {f"{name}.{moment}": moments[moment][name] for moment in MOMENTS for name in moments[moment]}
    return moved, float(part_of(state, ClipState).grad_norm)


def set_moments(opt_state, m, v, step: int):
    """Puts AdamW into mid-run: both moments and the count of steps already taken (its bias correction)."""

    def replace(leaf):
        return leaf._replace(count=jnp.asarray(step, jnp.int32), m=m, v=v) if isinstance(leaf, AdamState) else leaf

    return jax.tree.map(replace, opt_state, is_leaf=lambda leaf: isinstance(leaf, AdamState))


@dataclass(frozen=True, slots=True)
class ChainStep:
    """What one optimizer step did to a case's tensors, flattened in name order: float32 [n]."""

    update: np.ndarray
    m: np.ndarray
    v: np.ndarray
    grad_norm: float
    clip_factor: float


def run_chain(recipe: Recipe, case: OptimizerCase) -> list[ChainStep]:
    """The recipe's clip and optimizer on the contract's gradients."""
    rates = (0.0,) * case.step + case.learning_rates
    transformation = Chain(recipe.optimizer, rates).transformation()
    params = jax.tree.map(jnp.asarray, case.params)
    state = set_moments(transformation.init(params), *jax.tree.map(jnp.asarray, (case.m, case.v)), case.step)
    steps = []
    for grads in case.grads:
        before = params
        params, state = apply_gradients(transformation, params, state, grads)
        steps.append(_chain_step(before, params, state))
    return steps


def _chain_step(before, after, state) -> ChainStep:
    adam, clip = part_of(state, AdamState), part_of(state, ClipState)
    return ChainStep(_flat(after) - _flat(before), _flat(adam.m), _flat(adam.v), float(clip.grad_norm), float(clip.factor))


def _flat(tensors) -> np.ndarray:
    return np.concatenate([np.asarray(tensors[name]).ravel() for name in sorted(tensors)])
