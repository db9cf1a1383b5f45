"""Taps: hooks that note the dtype of what leaves norms and projections, and the dtype that norms compute in."""

from collections.abc import Callable, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm

# Operations that compute nothing.
MOVES = {"_to_copy", "view", "_unsafe_view", "expand", "unsqueeze", "squeeze", "transpose", "clone", "detach", "alias"}
Note = Callable[[str, torch.dtype], None]


class NarrowestDtype(TorchDispatchMode):
    """Notes the narrowest floating dtype in which anything inside is computed; casts and moves are no computation."""

    def __init__(self, note: Callable[[torch.dtype], None]):
        super().__init__()
        self._note, self._dtypes = note, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in MOVES and isinstance(out, torch.Tensor) and out.is_floating_point():
            self._dtypes.add(out.dtype)
        return out

    def __exit__(self, *exception) -> None:
        super().__exit__(*exception)
        self._note(min(self._dtypes, key=lambda dtype: torch.finfo(dtype).bits))


def dtype_hooks(decoder: torch.nn.Module, note: Note) -> Iterator[torch.utils.hooks.RemovableHandle]:
    """Of every norm, and of every projection with its adapter: `norm`, `norm_arithmetic`, `q_proj` and so on."""
    for name, module in decoder.named_modules():
        if isinstance(module, Gemma4RMSNorm):
            mode = NarrowestDtype(lambda dtype: note("norm_arithmetic", dtype))
            yield module.register_forward_pre_hook(_entering(mode))
            yield module.register_forward_hook(_leaving(mode))
            yield module.register_forward_hook(_noting(note, "norm"))
        elif name.endswith("_proj"):
            yield module.register_forward_hook(_noting(note, name.rsplit(".", 1)[-1]))


def _entering(mode: TorchDispatchMode):
    def hook(module, args) -> None:
        mode.__enter__()

    return hook


def _leaving(mode: TorchDispatchMode):
    def hook(module, args, output) -> None:
        mode.__exit__(None, None, None)

    return hook


def _noting(note: Note, stream: str):
    def hook(module, args, output) -> None:
        note(stream, output.dtype)

    return hook
