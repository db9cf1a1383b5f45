"""The oracle is float64 throughout, and a wrong checkpoint is refused by the tensor's name."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from conformance.contract.checkpoint_files import read_tensors
from conformance.contract.errors import ContractError
from conformance.contract.variants import broken, variant
from reference.model import export_weights, load_checkpoint
from reference.oracle import NoFloat32, oracle
from reference.probe import plain_logits


def forward(model) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 40, 50, 60]]), use_cache=False).logits


def test_no_operation_of_the_oracle_yields_float32(session):
    model = session.base("f64")
    with oracle(), NoFloat32():
        assert forward(model).dtype == torch.float64


def test_a_plain_double_model_is_no_oracle(session):
    """Control: transformers' own casts are caught by the guard."""
    with NoFloat32(), pytest.raises(AssertionError, match="yields float32"):
        forward(session.base("f64"))


def test_the_oracle_leaves_torch_as_it_was():
    before = torch.Tensor.float, torch.nn.functional.softmax
    with oracle():
        assert torch.ones(1).float().dtype == torch.float64
    assert (torch.Tensor.float, torch.nn.functional.softmax) == before


def test_float32_is_near_the_oracle_and_bfloat16_is_not(session):
    single, half, exact = (plain_logits(session.base(precision), session.plan, precision) for precision in ("f32", "bf16", "f64"))
    real = session.plan.probes.attention == 1
    errors = [np.sqrt(np.square(value - exact)[real].mean()) for value in (single, half)]
    assert errors[0] < 2e-5 < 100 * errors[0] < errors[1]


@pytest.mark.parametrize("case", ["missing", "extra", "shape"])
def test_a_wrong_checkpoint_is_refused_by_name(session, case):
    tensors = read_tensors(session.recipe.checkpoint_dir)
    tensor, wrong = next((t, b) for c, t, b in broken(tensors) if c == case)
    with pytest.raises(ContractError, match=tensor.replace(".", r"\.")):
        load_checkpoint(variant(session.recipe.checkpoint_dir, session.scratch, f"test-{case}", wrong))


def test_a_text_only_prefix_loads_to_the_same_tensors(session):
    tensors = read_tensors(session.recipe.checkpoint_dir)
    plain = {name.replace("language_model.", ""): value for name, value in tensors.items()}
    exported = export_weights(load_checkpoint(variant(session.recipe.checkpoint_dir, session.scratch, "test-prefix", plain), "bf16"))
    assert exported.keys() == tensors.keys()
    assert all(np.array_equal(exported[name], value) for name, value in tensors.items())


BUFFERS = """
import json, sys
from pathlib import Path
from reference.model import load_checkpoint
rotary = load_checkpoint(Path(sys.argv[1])).model.language_model.rotary_emb
print(json.dumps([list(type(rotary)(rotary.config)._buffers), list(rotary._buffers)]))
"""


def test_every_process_has_its_buffers_in_the_same_order(session):
    """Whatever the process's hash seed. Control: transformers' own order is another with another seed."""
    command = [sys.executable, "-c", BUFFERS, str(session.recipe.checkpoint_dir)]
    environments = [os.environ | {"PYTHONHASHSEED": seed} for seed in "01"]
    found = [subprocess.run(command, env=environment, capture_output=True, check=True).stdout for environment in environments]
    (stock, ours), (other_stock, other_ours) = map(json.loads, found)
    assert ours == other_ours
    assert stock != other_stock
    assert set(ours) == set(stock) == set(other_stock)
