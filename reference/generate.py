"""Greedy generation by transformers, with what each choice weighed; the same choices teacher-forced."""

import numpy as np
import torch

from conformance.contract.choices import END, Choices, ended, uncached
from conformance.contract.plan import Plan
from reference.oracle import arithmetic


def generate(model, plan: Plan, precision: str) -> Choices:
    """All prompts as one left-padded batch, up to `plan.max_new_tokens` tokens each."""
    lengths = [len(prompt) for prompt in plan.prompts]
    ids = torch.full((len(lengths), max(lengths)), plan.pad_id)
    for row, prompt in zip(ids, plan.prompts, strict=True):
        row[len(row) - len(prompt) :] = torch.from_numpy(prompt)
    attention = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    with torch.no_grad(), arithmetic(precision, model.device.type):
        out = model.generate(
            ids, attention_mask=attention.long(), do_sample=False, max_new_tokens=plan.max_new_tokens,
            eos_token_id=list(plan.eos_ids), pad_token_id=plan.pad_id, return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    new = out.sequences[:, ids.shape[1] :]
    return _choices(ended(new.numpy(), plan), torch.stack(out.logits, 1).float(), plan.max_new_tokens)


def generate_uncached(model, plan: Plan, guess_GK: np.ndarray, precision: str) -> np.ndarray:
    """Greedy ids [G,K] by full forward passes, whatever the guess."""
    return uncached(lambda ids_GK: forced(model, plan, ids_GK, precision)[0], guess_GK, plan)


def forced(model, plan: Plan, ids_GK: np.ndarray, precision: str) -> tuple[np.ndarray, Choices]:
    """(argmax int32 [G,K], what the given ids weighed) from one forward pass over each prompt with its continuation."""
    argmax, choices = [], []
    for prompt, new in zip(plan.prompts, ids_GK, strict=True):
        written = new[new != END]
        whole = torch.from_numpy(np.concatenate([prompt, written]).astype(np.int64))[None]
        with torch.no_grad(), arithmetic(precision, model.device.type):
            logits = model(input_ids=whole, use_cache=False).logits[:, len(prompt) - 1 : -1].float()
        argmax.append(_filled(logits[0].argmax(-1).numpy(), ids_GK.shape[1], END).astype(np.int32))
        choices.append(_choices(written[None], logits, ids_GK.shape[1]))
    columns = (np.concatenate([getattr(one, name) for one in choices]) for name in Choices.__slots__)
    return np.stack(argmax), Choices(*columns)


def _choices(ids_GK: np.ndarray, logits_GKV: torch.Tensor, width: int) -> Choices:
    logprobs = torch.log_softmax(logits_GKV, -1)
    chosen = logprobs.gather(-1, torch.from_numpy(ids_GK).long().clamp(min=0)[..., None])[..., 0].numpy()
    first, second = logits_GKV.topk(2, -1).values.unbind(-1)
    written = ids_GK != END
    weighed = (np.where(written, value, 0).astype(np.float32) for value in (chosen, (first - second).numpy()))
    return Choices(_filled(ids_GK, width, END), *(_filled(value, width, 0) for value in weighed))


def _filled(value: np.ndarray, width: int, fill: int) -> np.ndarray:
    """The last axis padded to `width`."""
    pads = [(0, 0)] * (value.ndim - 1) + [(0, width - value.shape[-1])]
    return np.pad(value, pads, constant_values=fill)
