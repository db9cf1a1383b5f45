"""The arithmetic around a model: the float64 oracle, and bfloat16 products as accelerators form them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.mm.out)


class AcceleratorProducts(TorchDispatchMode):
    """bfloat16 products as tensor cores form them: exact products, float32 sums, one rounding.

    A CPU without bfloat16 units does the same in a scalar kernel that is 16 times slower than this (EPYC, AVX2).
    With `rounding`, a seed, that one rounding is stochastic: up or down, as likely as the value is near. Such runs sample what
    rounding alone can do to a run, which one deterministic order of operations, repeated, does not.
    """

    def __init__(self, rounding: int | None = None, device: str = "cpu"):
        super().__init__()
        self._noise = None if rounding is None else torch.Generator(device).manual_seed(rounding)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in PRODUCTS or args[0].dtype != torch.bfloat16:
            return func(*args, **kwargs)
        product = self._rounded(func.overloadpacket(*(arg.float() for arg in args)))
        return kwargs["out"].copy_(product) if "out" in kwargs else product

    def _rounded(self, product: torch.Tensor) -> torch.Tensor:
        if self._noise is None:
            return product.bfloat16()
        bits = product.view(torch.int32)
        noise = torch.randint(2**16, bits.shape, generator=self._noise, dtype=torch.int32, device=bits.device)
        return ((bits + noise) & -(2**16)).view(torch.float32).bfloat16()  # bfloat16 is the upper half of float32


class NoFloat32(TorchDispatchMode):
    """The guard of the oracle's forward pass: fails at the first operation that yields float32."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            assert not (isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32), f"{func} yields float32"
        return out


@contextmanager
def arithmetic(precision: str, device: str = "cpu", rounding: int | None = None) -> Iterator[None]:
    """What a precision needs around it: nothing for f32, the oracle for f64, rounded products for bf16 on a CPU or by `rounding`."""
    if precision == "f64":
        with oracle():
            yield
    elif precision == "bf16" and (device == "cpu" or rounding is not None):
        with AcceleratorProducts(rounding, device):
            yield
    else:
        yield


@contextmanager
def oracle() -> Iterator[None]:
    """Keeps a `.double()` model in float64: transformers casts norms and softmax to float32, which costs 1.7e-5 of a logit."""
    functional = torch.nn.functional
    as_float, softmax, to = torch.Tensor.float, functional.softmax, torch.Tensor.to

    def softmax64(x, dim=None, dtype=None, **kwargs):
        return softmax(x, dim=dim, dtype=torch.float64 if dtype == torch.float32 else dtype, **kwargs)

    torch.Tensor.float = lambda self, *args, **kwargs: to(self, torch.float64)
    functional.softmax = softmax64
    try:
        yield
    finally:
        torch.Tensor.float, functional.softmax = as_float, softmax


def use_float64_constants(decoder: torch.nn.Module) -> None:
    """Rotary frequencies and the embedding's scale from float64; the module's own buffers were rounded to float32."""
    config = decoder.config
    scale = torch.tensor(config.hidden_size, dtype=torch.float64).sqrt()
    decoder.embed_tokens.embed_scale = scale
    for kind in decoder.unique_layer_types:
        setattr(decoder.rotary_emb, f"{kind}_inv_freq", _inverse_frequencies(config, kind))


def _inverse_frequencies(config, kind: str) -> torch.Tensor:
    """theta^(-2i/head) float64 [head/2]; "proportional" turns the first part only and leaves zeros behind (transformers)."""
    rope = config.rope_parameters[kind]
    head = config.global_head_dim if kind == "full_attention" else config.head_dim
    turned = int(rope.get("partial_rotary_factor", 1.0) * head // 2)
    exponents = torch.arange(0, 2 * turned, 2, dtype=torch.float64) / head
    frequencies = 1.0 / torch.tensor(rope["rope_theta"], dtype=torch.float64) ** exponents
    return torch.nn.functional.pad(frequencies, (0, head // 2 - turned))
