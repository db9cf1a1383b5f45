"""Greedy choices of a stack, in the words of the rung *generation*, and the folders that the rung *merge* writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.checkpoint_files import read_metadata, read_tensors, shard_names
from conformance.contract.digest import sha256_array
from conformance.contract.plan import Plan

END = -1  # fills a prompt's row after its last token
FOLDERS = {"trained": ("adapter", "merged"), "loud": ("adapter-loud", "merged-loud")}  # adapter -> its folder, its merge's


@dataclass(frozen=True, slots=True)
class Choices:
    """Per prompt (G) and new token (K): id int32 (-1 after the end, EOS included), log-probability and top-2 gap float32."""

    ids_GK: np.ndarray
    logprobs_GK: np.ndarray
    gaps_GK: np.ndarray


def stop_reason(ids_K: np.ndarray, plan: Plan) -> tuple[str, int]:
    """("eos" or "length", number of new tokens with the EOS)."""
    written = ids_K[ids_K != END]
    return ("eos" if written[-1] in plan.eos_ids else "length"), len(written)


def ended(new_GK: np.ndarray, plan: Plan) -> np.ndarray:
    """int32 [G,K], -1 behind the first EOS of each row."""
    is_eos = np.isin(new_GK, plan.eos_ids)
    after = np.cumsum(is_eos, 1) - is_eos > 0
    return np.where(after, END, new_GK).astype(np.int32)


def uncached(choose: Callable[[np.ndarray], np.ndarray], guess_GK: np.ndarray, plan: Plan) -> np.ndarray:
    """Greedy ids [G,K] without a cache: the fixed point of "each token is the forward pass's choice after those before it".

    `choose` gives the forward pass's choices [G,K] after given ids. Exact whatever the guess: every pass makes at least one more
    token of each row final. A right guess takes one pass.
    """
    ids, is_final = guess_GK, False
    while not is_final:
        chosen = ended(choose(np.where(ids == END, plan.pad_id, ids)), plan)
        ids, is_final = chosen, np.array_equal(chosen, ids)
    return ids


def write_choices(writer: BundleWriter, plan: Plan, precision: str, choices: Choices) -> None:
    writer.array("generation", f"{precision}/ids", choices.ids_GK)
    writer.array("generation", f"{precision}/logprobs", choices.logprobs_GK)
    for prompt, ids in enumerate(choices.ids_GK):
        reason, count = stop_reason(ids, plan)
        writer.line("generation", "stops", precision=precision, prompt=prompt, reason=reason, new_tokens=count)


def write_own_forced(writer: BundleWriter, precision: str, argmax_GK: np.ndarray, choices: Choices) -> None:
    """What a stack's own ids weigh in one forward pass, without the cache that they were chosen with."""
    writer.array("generation", f"{precision}/forced_argmax", argmax_GK)
    writer.array("generation", f"{precision}/forced_logprobs", choices.logprobs_GK)


def write_forced(writer, precision: str, argmax_GK: np.ndarray, choices: Choices) -> None:
    """Into the exchange: what the peer's ids weighed here."""
    for key, value in (("argmax", argmax_GK), ("gap", choices.gaps_GK), ("logprobs", choices.logprobs_GK)):
        writer.array(f"forced/{precision}/{key}", value)


def write_merged_tensors(writer: BundleWriter, adapter: str, folder: Path, base_folder: Path) -> None:
    """What the written files of a merge hold, read back."""
    base = read_tensors(base_folder)
    forms = {read_metadata(folder / shard).get("format", "") for shard in shard_names(folder)}
    for name, value in read_tensors(folder).items():
        writer.line(
            "merge", "tensors", adapter=adapter, name=name, dtype=value.dtype.name, shape=list(value.shape),
            sha256=sha256_array(value), touched=not np.array_equal(value, base[name]), metadata_format=" ".join(sorted(forms)),
        )  # fmt: skip
