"""Rung tokens: each stack tokenises and masks by its own path; the contract's tokenisation is the expected value."""

import numpy as np

from conformance.contract.digest import sha256_array


def per_row(bundle, name: str) -> dict[int, np.ndarray]:
    """Row number -> its slice of a flat array."""
    rows, offsets, flat = (bundle.array("tokens", key) for key in ("rows", "offsets", name))
    return {int(row): np.asarray(flat[a:b]) for row, a, b in zip(rows, offsets[:-1], offsets[1:], strict=True)}


def facts(bundle) -> dict:
    return bundle.lines("tokens", "facts")[0]


def test_the_same_rows_are_kept(judge, stacks, plan):
    """Both stacks keep the rows that the contract keeps, and no others."""
    for bundle in stacks:
        judge.same(f"{bundle.stack}", bundle.array("tokens", "rows").tolist(), [row.row for row in plan.rows])


def test_token_ids_are_equal(judge, stacks, plan):
    """Every kept row becomes the same token ids in both stacks."""
    for bundle in stacks:
        ids = per_row(bundle, "ids")
        for row in plan.rows:
            judge.same(f"{bundle.stack}, row {row.row}", ids.get(row.row), row.ids)


def test_loss_masks_are_equal(judge, stacks, plan):
    """The loss counts the same tokens of every row in both stacks."""
    for bundle in stacks:
        masks = per_row(bundle, "loss_mask")
        for row in plan.rows:
            judge.same(f"{bundle.stack}, row {row.row}", masks.get(row.row), row.loss_mask)


def test_every_row_starts_with_its_only_bos(judge, stacks, plan):
    """Every row has exactly one BOS, in front."""
    for bundle in stacks:
        for row, ids in per_row(bundle, "ids").items():
            judge.same(f"{bundle.stack}, row {row}", np.flatnonzero(ids == plan.bos_id).tolist(), [0])


def test_the_turn_end_is_learnt(judge, stacks, plan, recipe):
    """The last token that counts ends the turn, and is not padding: the model learns to stop.

    With loss over all tokens the break after the turn counts too.
    """
    ends = set(plan.eos_ids) - {plan.pad_id}
    cut = {row.row for row in plan.rows if len(row.ids) == recipe.data.max_tokens}  # a truncated row has lost its end
    for bundle in stacks:
        ids, masks = per_row(bundle, "ids"), per_row(bundle, "loss_mask")
        for row in set(ids) - cut:
            counted = ids[row][masks[row] == 1]
            last = counted[-1:] if recipe.data.loss_scope == "assistant" else counted
            judge.same(f"{bundle.stack}, row {row}", bool(ends & set(last.tolist())), True)


def test_special_ids_and_template_are_equal(judge, stacks, plan):
    """Both stacks read the same chat template and the same BOS, EOS and padding ids."""
    expected = {
        "template_sha256": plan.tokenizer.template_sha256,
        "bos_id": plan.bos_id,
        "eos_ids": list(plan.eos_ids),
        "pad_id": plan.pad_id,
    }
    for bundle in stacks:
        for name, value in expected.items():
            judge.same(f"{bundle.stack}, {name}", facts(bundle)[name], value)


def test_an_unmasked_prompt_is_told_apart(judge, stacks, plan, recipe):
    """Control: the same rows with loss over the prompt have another mask in every row."""
    if recipe.data.loss_scope == "all":
        judge.same("loss scope", recipe.data.loss_scope, "all")
        return
    for bundle in stacks:
        masks = per_row(bundle, "control.unmasked/loss_mask")
        differing = sum(sha256_array(masks[row.row]) != sha256_array(row.loss_mask) for row in plan.rows)
        judge.at_least(f"{bundle.stack}, rows told apart", differing, len(plan.rows))
