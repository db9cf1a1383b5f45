"""The port against its own stock: what each correction prevents."""

import dataclasses
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tunix.models.gemma4 import model as gemma4

from conformance.contract.errors import ContractError
from conformance.contract.optimizer_cases import optimizer_cases
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from tpu_impl import adapter
from tpu_impl.corrections import ALL
from tpu_impl.data import load_tokenizer, tokenise
from tpu_impl.faults.seams import without
from tpu_impl.model import load_checkpoint, logits_of
from tpu_impl.optimizer import Chain
from tpu_impl.step import run_chain

RECIPE = load_recipe(Path(__file__).parents[2] / "conformance" / "recipes" / "tiny.toml")


def test_a_module_path_that_matches_nothing_is_refused():
    """Qwix says nothing and the trainer would train every parameter; the port names a weight that is not adapted."""
    with (
        mock.patch.object(adapter, "module_path", lambda recipe: r"layers/\d+/no_such_module"),
        pytest.raises(ContractError, match=r"Qwix and the contract disagree on model\.language_model\.layers"),
    ):
        adapter.attach_adapter(load_checkpoint(RECIPE.checkpoint_dir), RECIPE)


def test_rematerialisation_before_the_adapters_is_refused():
    """With rematerialisation on first, as the stock order allows, Qwix finds no weight; the port's order finds them all."""
    early = dataclasses.replace(ALL, remat_after_lora=False)
    with pytest.raises(ContractError, match="disagree"):
        adapter.attach_adapter(load_checkpoint(RECIPE.checkpoint_dir), RECIPE, "decoder", early)
    adapted = adapter.attach_adapter(load_checkpoint(RECIPE.checkpoint_dir), RECIPE, "decoder")
    assert len(adapter.lora_weights(adapted)) == 82


def test_values_are_normed_otherwise_than_by_tunix_in_bfloat16_alone():
    """In float32 to the last bit as Tunix norms them, in bfloat16 not; with the correction off as Tunix there too."""
    ids = make_plan(RECIPE).probes.ids[:1]
    for precision in ("f32", "bf16"):
        model = load_checkpoint(RECIPE.checkpoint_dir, precision)
        ours = plain(model, ids)
        with without("float32_values"):
            off = plain(model, ids)
        for layer in model.layers:
            layer.attn.__class__ = gemma4.Attention
        stock = plain(model, ids)
        assert (off == stock).all()
        assert (ours == stock).all() == (precision == "f32")


def plain(model, ids_BT) -> np.ndarray:
    """Logits [B,T,V], not jitted: nothing is fused."""
    positions_BT = np.broadcast_to(np.arange(ids_BT.shape[1]), ids_BT.shape)
    return np.asarray(logits_of(model, ids_BT, np.ones(ids_BT.shape, bool), positions_BT), np.float32)


def test_the_stock_chain_is_not_torchs():
    """optax's clip and AdamW give other updates than the port's on the contract's gradients."""
    case = optimizer_cases(1.0)[1]
    ours = run_chain(RECIPE, case)[0].update
    rates = (0.0,) * case.step + case.learning_rates
    stock = Chain(RECIPE.optimizer, rates, corrections=dataclasses.replace(ALL, torch_clip=False, torch_adamw=False))
    transformation, params = stock.transformation(), jax.tree.map(jnp.asarray, case.params)
    updates, _ = transformation.update(case.grads[0], transformation.init(params), params)
    theirs = np.concatenate([np.asarray(updates[name]).ravel() for name in sorted(updates)])
    assert np.abs(ours - theirs).max() > 1e-6


def test_the_ports_own_path_gives_the_contracts_tokens():
    """Rendering to text and masking by character offsets gives the ids and masks of the contract's generation blocks."""
    plan = make_plan(RECIPE)
    tokenised = tokenise(plan, load_tokenizer(RECIPE.checkpoint_dir))
    everything = tokenise(plan, load_tokenizer(RECIPE.checkpoint_dir), "all")
    for row in plan.rows:
        assert np.array_equal(tokenised[row.row].ids, row.ids)
        assert np.array_equal(tokenised[row.row].loss_mask, row.loss_mask)
        assert not np.array_equal(everything[row.row].loss_mask, row.loss_mask)  # control


@pytest.mark.parametrize("case", ["missing", "shape"])
def test_a_broken_checkpoint_is_refused_by_name(tmp_path, case):
    """Tunix skips or breaks on it with an unrelated message; the port names the tensor before Tunix sees the file."""
    from conformance.contract.checkpoint_files import read_file, write_file

    for path in RECIPE.checkpoint_dir.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = sorted(tmp_path.glob("*.safetensors"))[0]
    tensors = {name: np.array(value) for name, value in read_file(shard).items()}
    name = sorted(tensors)[5]
    if case == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][:, :8] if tensors[name].ndim == 2 else tensors[name][:3]
    shard.unlink()
    write_file(shard, tensors, {"format": "pt"})
    with pytest.raises(ContractError, match=name.replace(".", r"\.")):
        load_checkpoint(tmp_path)
