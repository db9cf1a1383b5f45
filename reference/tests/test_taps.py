"""What the taps say of a norm: the narrowest dtype in which it computes, whatever it is given and gives."""

import torch
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm

from reference.taps import dtype_hooks

X = torch.ones(2, 3, 8, dtype=torch.bfloat16)


def heard(norm: Gemma4RMSNorm) -> list[tuple[str, torch.dtype]]:
    notes = []
    list(dtype_hooks(norm, lambda stream, dtype: notes.append((stream, dtype))))
    norm(X)
    return notes


def test_a_norm_of_a_bfloat16_stream_computes_in_float32():
    assert heard(Gemma4RMSNorm(8).bfloat16()) == [("norm_arithmetic", torch.float32), ("norm", torch.bfloat16)]


def test_a_norm_that_computes_in_the_streams_dtype_is_told_apart(monkeypatch):
    """Control: its input and output are the same as the other's."""
    monkeypatch.setattr(Gemma4RMSNorm, "forward", lambda self, x: self._norm(x) * self.weight)
    assert heard(Gemma4RMSNorm(8).bfloat16()) == [("norm_arithmetic", torch.bfloat16), ("norm", torch.bfloat16)]
