"""Rung batches: what each optimizer step really consumed, by step, micro-batch and shard."""

from collections import Counter

import numpy as np

from conformance.contract.digest import sha256_bytes
from conformance.contract.plan import EMPTY


def consumed(bundle) -> list[dict]:
    return bundle.lines("batches", "consumed")


def planned(plan, lines: list[dict]) -> dict[tuple[int, int, int], list[int]]:
    """(step, micro, shard) -> row numbers, in the split that a stack took: 2 GPUs and 4 chips split the same steps otherwise."""
    accumulation, shards = (1 + max((line[name] for line in lines), default=0) for name in ("micro", "shard"))
    if plan.recipe.batch.effective % (accumulation * shards):
        accumulation, shards = plan.recipe.batch.accumulation, plan.recipe.batch.shards
    steps = plan.with_batch(accumulation, shards)
    return {(step.index, m, s): list(rows) for step in steps for m, micro in enumerate(step.micros) for s, rows in enumerate(micro)}


def expected_digests(plan, name: str) -> dict[int, str]:
    """Row -> sha256 over the bytes of its ids (int32) or loss mask (uint8)."""
    return {row.row: sha256_bytes(np.ascontiguousarray(getattr(row, name)).tobytes()) for row in plan.rows}


def real(line: dict, name: str) -> list[tuple[int, object]]:
    """(row, value) of the rows of a consumed micro-batch that are not empty."""
    return [(row, value) for row, value in zip(line["rows"], line[name], strict=True) if row != EMPTY]


def test_every_micro_batch_takes_its_rows(judge, stacks, plan):
    """Each step, micro-batch and shard consumes the rows that the plan gives it, in that order, however a stack splits the step."""
    for bundle in stacks:
        rows = {(line["step"], line["micro"], line["shard"]): line["rows"] for line in consumed(bundle)}
        expected_rows = planned(plan, consumed(bundle))
        judge.same(f"{bundle.stack}, micro-batches", set(rows), set(expected_rows))
        for place, expected in expected_rows.items():
            judge.same(f"{bundle.stack}, step {place[0]} micro {place[1]} shard {place[2]}", rows.get(place), expected)


def test_consumed_ids_are_the_rows_ids(judge, stacks, plan):
    """The unpadded ids that entered the model are the row's ids."""
    _compare_digests(judge, stacks, expected_digests(plan, "ids"), "ids_sha256")


def test_consumed_loss_masks_are_the_rows_masks(judge, stacks, plan):
    """The tokens that counted in the loss are the row's answer tokens."""
    _compare_digests(judge, stacks, expected_digests(plan, "loss_mask"), "mask_sha256")


def _compare_digests(judge, stacks, expected: dict[int, str], name: str) -> None:
    for bundle in stacks:
        for line in consumed(bundle):
            for row, digest in real(line, name):
                place = f"{bundle.stack}, step {line['step']} micro {line['micro']}, row {row}"
                judge.same(place, digest, expected.get(row, "none: no row of the plan"))


def test_padding_is_not_attended(judge, stacks):
    """The attention mask covers exactly the tokens of each row."""
    for bundle in stacks:
        for line in consumed(bundle):
            pairs = zip(real(line, "attended"), real(line, "tokens"), strict=True)
            for (row, attended), (_, tokens) in pairs:
                judge.same(f"{bundle.stack}, step {line['step']}, row {row}", attended, tokens)


def test_empty_rows_weigh_nothing(judge, stacks):
    """Rows that fill the last step count no loss token."""
    for bundle in stacks:
        empty = [n for line in consumed(bundle) for r, n in zip(line["rows"], line["loss_tokens"], strict=True) if r == EMPTY]
        judge.same(f"{bundle.stack}, loss tokens of empty rows", sum(empty), 0)


def test_no_row_is_seen_twice_in_an_epoch(judge, stacks, recipe):
    """Every kept row is seen once an epoch, none twice."""
    for bundle in stacks:
        counts = Counter(row for line in consumed(bundle) for row in line["rows"] if row != EMPTY)
        judge.same(f"{bundle.stack}, times seen", set(counts.values()), {recipe.data.epochs})


def test_steps_have_the_same_tokens(judge, stacks, plan):
    """Every optimizer step has the plan's rows, tokens and loss tokens, the last partial step included."""
    for bundle in stacks:
        lines = {line["step"]: line for line in bundle.lines("batches", "steps")}
        judge.same(f"{bundle.stack}, optimizer steps", len(lines), plan.total_steps)
        for step in plan.steps:
            rows = [plan.by_row[row] for row in step.rows]
            sums = [len(rows), sum(len(row.ids) for row in rows), sum(int(row.loss_mask.sum()) for row in rows)]
            line = lines.get(step.index, {})
            for name, expected in zip(("rows", "tokens", "loss_tokens"), sums, strict=True):
                judge.same(f"{bundle.stack}, step {step.index}, {name}", line.get(name), expected)


def test_the_epoch_has_the_same_tokens(judge, reference, port):
    """Over the whole run both stacks saw the same number of tokens and of loss tokens."""
    for name in ("rows", "tokens", "loss_tokens"):
        sums = [sum(line[name] for line in bundle.lines("batches", "steps")) for bundle in (reference, port)]
        judge.same(f"sum of {name}", sums[1], sums[0])


def test_learning_rates_are_the_tables(judge, stacks, plan):
    """Every step uses the float32 rounding of the contract's learning rate."""
    table = plan.learning_rates.astype(np.float32)
    for bundle in stacks:
        for line in bundle.lines("batches", "steps"):
            rate = float(np.float32(line["learning_rate"]))
            judge.same(f"{bundle.stack}, step {line['step']}", rate, float(table[line["step"]]))


def test_accumulation_and_shards_do_not_change_the_step(judge, stacks, plan):
    """Accumulation 1, 2, 4 over 1, 2, 4 data shards gives the same rows and tokens in every step."""
    by_step = {step.index: step for step in plan.steps}
    for bundle in stacks:
        lines = bundle.lines("batches", "variants")
        splits = {(line["accumulation"], line["shards"]) for line in lines}
        judge.same(f"{bundle.stack}, splits", splits, _splits(plan))
        for line in lines:
            rows = [plan.by_row[row] for row in sorted(by_step[line["step"]].rows)]
            sums = [[r.row for r in rows], sum(len(r.ids) for r in rows), sum(int(r.loss_mask.sum()) for r in rows)]
            where = f"{bundle.stack}, accumulation {line['accumulation']} shards {line['shards']} step {line['step']}"
            judge.same(where, [line["rows"], line["tokens"], line["loss_tokens"]], sums)


def _splits(plan) -> set[tuple[int, int]]:
    effective = plan.recipe.batch.effective
    return {(a, s) for a in (1, 2, 4) for s in (1, 2, 4) if effective % (a * s) == 0}


def test_the_loss_does_not_depend_on_padding(judge, stacks, limits):
    """Left, right and no padding give the same loss."""
    judge.measure_in("relative difference of the loss", "full")
    for bundle in stacks:
        lines = bundle.lines("batches", "padding")
        losses = {line["side"]: line["loss"] for line in lines if line["precision"] == "f32"}
        judge.same(f"{bundle.stack}, sides", set(losses), {"left", "right", "none"})
        for side in ("left", "right"):
            error = abs(losses[side] / losses["none"] - 1)
            judge.within(f"{bundle.stack}, {side}", error, limits["loss_rounding"].value, expected=losses["none"], got=losses[side])
