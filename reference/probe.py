"""What a forward pass shows: logits, the residual stream after each layer, what each block adds, the dtype of each stream."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

from conformance.contract.plan import Plan
from reference.model import language_model
from reference.oracle import NoFloat32, arithmetic
from reference.taps import dtype_hooks


@dataclass(slots=True)
class Probed:
    """Float64 from the oracle, float32 otherwise. M = layers + 1: before layer 0 and after each; S sampled positions."""

    logits_PTV: np.ndarray | None = None
    pre_cap_max_abs: float = 0.0
    hidden_PSH: list[np.ndarray] = field(default_factory=list)
    attention_PSH: list[np.ndarray] = field(default_factory=list)
    mlp_PSH: list[np.ndarray] = field(default_factory=list)
    seen: dict[str, set[str]] = field(default_factory=dict)  # dtypes of a stream, over all layers

    @property
    def dtypes(self) -> dict[str, str]:
        return {stream: "+".join(sorted(names)) for stream, names in self.seen.items()}

    def note_dtype(self, stream: str, dtype: torch.dtype) -> None:
        self.seen.setdefault(stream, set()).add(name(dtype))


def probe(model, ids_PT: np.ndarray, attention_PT: np.ndarray, precision: str, positions_S: np.ndarray | None = None) -> Probed:
    """One forward pass; `positions_S` None leaves the layers out."""
    probed = Probed()
    inputs = {"input_ids": torch.tensor(ids_PT, dtype=torch.long), "attention_mask": torch.tensor(attention_PT, dtype=torch.long)}
    positions = None if positions_S is None else torch.tensor(positions_S, dtype=torch.long)
    model.eval()
    guard = NoFloat32() if precision == "f64" else nullcontext()
    with torch.no_grad(), arithmetic(precision), guard, _hooks(model, probed, positions):
        logits = model(**inputs, use_cache=False).logits
    probed.note_dtype("logits", logits.dtype)
    probed.logits_PTV = as_recorded(logits)
    return probed


def plain_logits(model, plan: Plan, precision: str = "f32") -> np.ndarray:
    """Logits [P,T,V] of the contract's probes, right-padded."""
    return probe(model, plan.probes.ids, plan.probes.attention, precision).logits_PTV


def left_padded(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """The probes' ids and attention [P,T], each row's padding moved to its left."""
    shifts = (plan.probes.attention == 0).sum(-1)
    moved = [(np.roll(i, s), np.roll(a, s)) for i, a, s in zip(plan.probes.ids, plan.probes.attention, shifts, strict=True)]
    ids, attention = (np.stack(value) for value in zip(*moved, strict=True))
    return ids, attention


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def as_recorded(tensor: torch.Tensor) -> np.ndarray:
    """bfloat16 widens to float32 exactly; float64 stays."""
    return (tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)).detach().cpu().numpy().copy()


@contextmanager
def _hooks(model, probed: Probed, positions: torch.Tensor | None) -> Iterator[None]:
    decoder = language_model(model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    handles = [base.lm_head.register_forward_hook(_keeper(lambda out: _note_pre_cap(probed, out)))]
    if positions is not None:
        handles += _layer_hooks(decoder, probed, positions)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layer_hooks(decoder, probed: Probed, positions: torch.Tensor) -> list:
    def keep(into: list[np.ndarray], stream: str):
        return _keeper(lambda out: (into.append(as_recorded(out[:, positions])), probed.note_dtype(stream, out.dtype)))

    first = decoder.layers[0]
    # First, so that no other hook works inside a norm.
    handles = list(dtype_hooks(decoder, probed.note_dtype))
    handles += [first.register_forward_pre_hook(lambda _, args: probed.hidden_PSH.append(as_recorded(args[0][:, positions])))]
    for layer in decoder.layers:
        handles += [
            layer.register_forward_hook(keep(probed.hidden_PSH, "residual")),
            layer.post_attention_layernorm.register_forward_hook(keep(probed.attention_PSH, "attention")),
            layer.post_feedforward_layernorm.register_forward_hook(keep(probed.mlp_PSH, "mlp")),
            layer.self_attn.register_forward_hook(_keeper(lambda out: _note_probabilities(probed, out[1]))),
        ]
    return handles


def _keeper(take):
    """A forward hook that looks and returns nothing (a returned value would replace the output)."""

    def hook(module, args, output) -> None:
        take(output)

    return hook


def _note_probabilities(probed: Probed, tensor: torch.Tensor | None) -> None:
    """Only eager attention shows them."""
    if tensor is not None:
        probed.note_dtype("attention_probabilities", tensor.dtype)


def _note_pre_cap(probed: Probed, tensor: torch.Tensor) -> None:
    probed.pre_cap_max_abs = float(tensor.abs().max())
