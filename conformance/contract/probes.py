"""Probe inputs: token ids that both stacks run forward, and prompts that both continue."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conformance.contract.draws import philox
from conformance.contract.errors import ContractError
from conformance.contract.rows import read_rows
from conformance.contract.tokens import up_to_question

if TYPE_CHECKING:
    from conformance.contract.plan import Plan

PROBES = 8
REACH = 272  # tokens of the long probe: bfloat16 counts exactly to 256 only, and rounds 8 of its positions
WINDOWS = 3  # a probe is three sliding windows long: the window mask shows only past one, its cache only past two
POSITIONS = 32  # sampled positions of hidden states (DESIGN.md, kind "sampled")
PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Probes:
    """ids int32 [P,T] and attention uint8 [P,T], padded on the right; positions int32 [S] where hidden states are taken.

    long int32 [U]: one more row, unpadded, that goes on where probe 0 ends.
    """

    ids: np.ndarray
    attention: np.ndarray
    positions: np.ndarray
    long: np.ndarray


def draw_probes(plan: "Plan") -> Probes:
    """Running text of the kept rows, one BOS in front; ragged: probe 0 is full, half are over two windows, one is one window.

    The long probe is as wide as probe 0 where that reaches far enough: at 31B.
    """
    window = plan.topology.window
    width = WINDOWS * window
    lengths = _lengths(plan, width, window)
    stream = np.concatenate([row.ids[row.ids != plan.bos_id] for row in _ordered(plan, PROBES * width)])
    ids = np.full((PROBES, width), plan.pad_id, np.int32)
    text = np.resize(stream, PROBES * width)
    for index, length in enumerate(lengths):
        ids[index, 0] = plan.bos_id
        ids[index, 1:length] = text[index * width :][: length - 1]
    attention = (np.arange(width)[None] < lengths[:, None]).astype(np.uint8)
    draw = philox("positions", plan.recipe.seeds.data, "probes")
    positions = np.sort(draw.permutation(width)[: min(POSITIONS, width)]).astype(np.int32)
    long = np.asarray([plan.bos_id, *text[: long_width(width) - 1]], np.int32)
    return Probes(ids, attention, positions, long)


def long_width(width: int) -> int:
    """Tokens of the long probe, beside probes of `width` tokens."""
    return max(width, REACH)


def _lengths(plan: "Plan", width: int, window: int) -> np.ndarray:
    draw = philox("lengths", plan.recipe.seeds.data, "probes")
    half = PROBES // 2
    long, short = draw.integers(2 * window + 2, width, half - 1), draw.integers(window, 2 * window, half - 1)
    return np.asarray([width, *long, *short, window], np.int64)


def _ordered(plan: "Plan", tokens: int) -> list:
    """Kept rows in training order until they hold `tokens` tokens."""
    taken, total = [], 0
    for row in plan.order:
        taken.append(plan.by_row[row])
        total += len(taken[-1].ids)
        if total >= tokens:
            break
    return taken


def draw_prompts(plan: "Plan") -> tuple[np.ndarray, ...]:
    """The questions of 16 rows, int32 ids."""
    return tuple(plan.tokenizer.encode_prompt(messages) for messages in _questions(plan))


def prompt_messages(plan: "Plan") -> tuple[list[dict[str, str]], ...]:
    """The conversations that the prompts are made of, as a chat API takes them."""
    return tuple([{"role": role, "content": text} for role, text in up_to_question(turns)] for turns in _questions(plan))


def _questions(plan: "Plan") -> list[tuple[tuple[str, str], ...]]:
    chosen, file = plan.recipe.generation.prompt_rows, plan.recipe.prompts_file or plan.recipe.rows_file
    if not chosen:
        return [_turns(row) for row in _spread(plan)]
    if plan.recipe.prompts_file:
        known = {row.row: row.messages for row in read_rows(file, strip=plan.recipe.data.strip_reasoning)}
    else:
        known = {row.row: _turns(row) for row in plan.rows}
    missing = [row for row in chosen if row not in known]
    if missing:
        what = "row" if plan.recipe.prompts_file else "kept row"
        raise ContractError(f"generation.prompt_rows: row {missing[0]} is not a {what} of {file}")
    return [known[row] for row in chosen]


def _turns(row) -> tuple[tuple[str, str], ...]:
    return tuple((turn["role"], turn["content"]) for turn in row.messages)


def _spread(plan: "Plan") -> list:
    """Half with answers that fit into the new tokens, half with longer ones."""
    ranked = sorted(plan.rows, key=lambda row: (int(row.loss_mask.sum()), row.row))
    short = [row for row in ranked if row.loss_mask.sum() <= plan.max_new_tokens]
    long = [row for row in ranked if row.loss_mask.sum() > plan.max_new_tokens]
    return _evenly(short or ranked, PROMPTS // 2) + _evenly(long or ranked, PROMPTS // 2)


def _evenly(rows: list, count: int) -> list:
    return [rows[int(index)] for index in np.linspace(0, len(rows) - 1, count)]
