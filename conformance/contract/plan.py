"""The plan of a recipe: which rows are kept, in what order, and which rows each step, micro-batch and shard takes.

The plan is decided before either stack sees the rows. Stock loaders decide it for themselves, each in its own way: TRL drops rows
without answer tokens silently, accelerate repeats rows to fill the last batch, `optax.MultiSteps` never steps on a partial group.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.contract.digest import sha256_array, sha256_json
from conformance.contract.draws import philox
from conformance.contract.errors import ContractError
from conformance.contract.probes import Probes, draw_probes, draw_prompts
from conformance.contract.recipe import Recipe
from conformance.contract.rows import Row, read_rows
from conformance.contract.schedule import learning_rates
from conformance.contract.tokens import ChatTokenizer
from conformance.contract.topology import Topology, read_topology

EMPTY = -1  # a row of loss weight 0 that fills the last step
WIDTH_MULTIPLE = 64  # static shapes compile once; 64 wastes at most 63 positions a row


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A kept row: ids int32 [n], loss_mask uint8 [n]; messages after the recipe's reasoning strip."""

    row: int
    messages: list[dict[str, str]]
    ids: np.ndarray
    loss_mask: np.ndarray


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: `micros[micro][shard]` is the tuple of its row numbers."""

    index: int
    micros: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows of the step but the empty ones."""
        return tuple(row for micro in self.micros for shard in micro for row in shard if row != EMPTY)


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    topology: Topology
    tokenizer: ChatTokenizer
    rows: tuple[PlannedRow, ...]
    dropped: tuple[tuple[int, str], ...]
    order: tuple[int, ...]

    max_new_tokens = 64

    @cached_property
    def by_row(self) -> dict[int, PlannedRow]:
        return {row.row: row for row in self.rows}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return self.with_batch(self.recipe.batch.accumulation, self.recipe.batch.shards, self.recipe.batch.micro_batch)

    @property
    def total_steps(self) -> int:
        return -(-len(self.order) // self.recipe.batch.effective)

    @property
    def learning_rates(self) -> np.ndarray:
        """float64 [total_steps]; the stacks index its float32 rounding."""
        return learning_rates(self.recipe, self.total_steps)

    @property
    def width(self) -> int:
        """Static padded width in tokens: the smallest multiple of 64 that holds the longest kept row."""
        longest = max(len(row.ids) for row in self.rows)
        return -(-longest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_id

    @property
    def bos_id(self) -> int:
        return self.tokenizer.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.tokenizer.eos_ids

    @cached_property
    def probes(self) -> Probes:
        return draw_probes(self)

    @cached_property
    def prompts(self) -> tuple[np.ndarray, ...]:
        """16 generation prompts, int32 ids."""
        return draw_prompts(self)

    @cached_property
    def warm_rows(self) -> Step:
        """The step whose rows the gradient checks use: the first whose micro-batches hold different numbers of targets, or the first.

        Where all hold as many, a mean of their means is the mean over the tokens, and a stack that takes it looks right.
        """
        return next((step for step in self.steps if len(self._targets(step)) > 1), self.steps[0])

    def _targets(self, step: Step) -> set[int]:
        """Numbers of targets that its micro-batches hold."""
        rows = ([row for shard in micro for row in shard if row != EMPTY] for micro in step.micros)
        return {sum(int(self.by_row[row].loss_mask.sum()) for row in micro) for micro in rows}

    def with_batch(self, accumulation: int, shards: int, micro_batch: int | None = None) -> tuple[Step, ...]:
        """The same steps split otherwise: effective batch and rows per step stay."""
        effective = self.recipe.batch.effective
        micro_batch = micro_batch or effective // (accumulation * shards)
        if micro_batch * accumulation * shards != effective:
            raise ContractError(
                f"micro_batch {micro_batch} x accumulation {accumulation} x shards {shards} is not the effective batch {effective}"
            )
        filled = self.order + (EMPTY,) * (-len(self.order) % effective)
        blocks = np.asarray(filled).reshape(-1, accumulation, shards, micro_batch)
        return tuple(Step(index, _tuples(block)) for index, block in enumerate(blocks))

    def to_json(self) -> dict:
        """What the bundle keeps of the plan."""
        return {
            "order": list(self.order),
            "dropped": [list(item) for item in self.dropped],
            "row_sha256": {str(row.row): sha256_array(np.stack([row.ids, row.loss_mask])) for row in self.rows},
            "batch": [self.recipe.batch.micro_batch, self.recipe.batch.accumulation, self.recipe.batch.shards],
            "learning_rates": [float(rate) for rate in self.learning_rates],
            "template_sha256": self.tokenizer.template_sha256,
            "probes_sha256": sha256_array(np.concatenate([self.probes.ids.ravel(), self.probes.long])),
            "prompts_sha256": sha256_array(np.concatenate(self.prompts)),
            "width": self.width,
        }

    @cached_property
    def digest(self) -> str:
        return sha256_json(self.to_json())

    @property
    def row_digest(self) -> str:
        """Digest of the kept rows' ids and masks alone: the token stream."""
        return sha256_json(self.to_json()["row_sha256"])


def make_plan(recipe: Recipe) -> Plan:
    """Reads rows and tokenizer, decides what is kept, and orders it."""
    tokenizer = ChatTokenizer(recipe.checkpoint_dir)
    if recipe.data.loss_scope == "assistant" and not tokenizer.has_generation_blocks:
        raise ContractError(f"{recipe.checkpoint_dir}: loss_scope 'assistant' needs a chat template with generation blocks")
    kept, dropped = [], []
    for row in read_rows(recipe.rows_file, strip=recipe.data.strip_reasoning):
        planned, reason = _judge(row, recipe, tokenizer)
        dropped.append((row.row, reason)) if reason else kept.append(planned)
    if not kept:
        raise ContractError(f"rows {recipe.rows_file}: none of {len(dropped)} rows is kept ({dropped[0][1]}, ...)")
    order = tuple(_order([row.row for row in kept], recipe))
    return Plan(recipe, read_topology(recipe.checkpoint_dir), tokenizer, tuple(kept), tuple(dropped), order)


def _judge(row: Row, recipe: Recipe, tokenizer: ChatTokenizer) -> tuple[PlannedRow | None, str | None]:
    """(kept row, None) or (None, reason)."""
    if not row.answer.strip():
        return None, "empty answer"
    tokens = tokenizer.encode(row.messages, loss_scope=recipe.data.loss_scope)
    ids, mask, limit = tokens.ids, tokens.loss_mask, recipe.data.max_tokens
    if len(ids) > limit and recipe.data.overlong == "error":
        raise ContractError(f"row {row.row} has {len(ids)} tokens, over data.max_tokens = {limit} (overlong = 'error')")
    if len(ids) > limit and recipe.data.overlong == "drop":
        return None, f"{len(ids)} tokens, over {limit}"
    ids, mask = ids[:limit], mask[:limit]
    if not mask.any():
        return None, "no answer token within the limit"
    messages = [{"role": role, "content": content} for role, content in row.messages]
    return PlannedRow(row.row, messages, ids, mask), None


def _order(rows: list[int], recipe: Recipe) -> list[int]:
    """Row numbers of all epochs in training order; no row twice in an epoch."""
    if recipe.data.order == "file":
        return rows * recipe.data.epochs
    generator = [philox("order", recipe.seeds.data, f"epoch {epoch}") for epoch in range(recipe.data.epochs)]
    return [rows[index] for draw in generator for index in draw.permutation(len(rows))]


def _tuples(block: np.ndarray) -> tuple:
    return tuple(tuple(tuple(int(row) for row in shard) for shard in micro) for micro in block)
