"""What a stack notes of a timed step is what the plan says of it, whatever the split into micro-batches."""

from dataclasses import asdict

import pytest

from conformance.contract.digest import sha256_bytes, tensor_bytes
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY
from conformance.contract.run_record import Consumed, StepLine
from conformance.contract.timed_steps import STEPS, StackFacts, StepWriter, planned_step, timed_step


def consumed(plan, index: int, accumulation: int, shards: int) -> list[Consumed]:
    """A step as recorders note it, last shard first: they come in any order."""
    step = plan.with_batch(accumulation, shards)[index]
    return [_consumed(plan, index, m, s, rows) for m, micro in enumerate(step.micros) for s, rows in reversed(list(enumerate(micro)))]


def _consumed(plan, index: int, micro: int, shard: int, rows: tuple[int, ...]) -> Consumed:
    known = [plan.by_row.get(row) for row in rows]
    digests = {
        f"{name}_sha256": [sha256_bytes(tensor_bytes(getattr(row, part))) if row else "" for row in known]
        for name, part in (("ids", "ids"), ("mask", "loss_mask"))
    }
    counts = [len(row.ids) if row else 0 for row in known]
    targets = [int(row.loss_mask.sum()) if row else 0 for row in known]
    return Consumed(index, micro, shard, list(rows), counts, targets, **digests, width=256, pad_side="right", attended=counts)


def line_of(found: list[Consumed], loss: float = 2.0) -> StepLine:
    tokens, targets = (sum(sum(getattr(one, name)) for one in found) for name in ("tokens", "loss_tokens"))
    return StepLine(found[0].step, loss, 1.0, 1e-3, 4, tokens, targets)


@pytest.mark.parametrize(("accumulation", "shards"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("index", [0, -1])
def test_a_step_is_the_planned_one_however_it_is_split(plan, index, accumulation, shards):
    """Also the last one, which empty rows fill; they are padding, and nothing else."""
    index = index % plan.total_steps
    found = consumed(plan, index, accumulation, shards)
    step, planned = timed_step(line_of(found), found, 0, 1), planned_step(plan, plan.steps[index])
    assert {name: getattr(step, name) for name in planned} == planned
    assert step.padded_tokens == 256 * plan.recipe.batch.effective
    assert any(EMPTY in one.rows for one in found) == (index > 0)


def test_rows_in_another_order_another_row_and_other_targets_are_other_digests(plan):
    """Controls of the test before."""
    planned = planned_step(plan, plan.steps[0])
    swapped = consumed(plan, 0, 1, 1)
    for name in ("rows", "ids_sha256", "mask_sha256"):
        getattr(swapped[0], name).reverse()
    other = consumed(plan, 1, 1, 1)
    masked = consumed(plan, 0, 1, 1)
    masked[0].mask_sha256[0] = "0" * 64
    names = ("rows_sha256", "tokens_sha256")
    steps = [timed_step(line_of(found), found, 0, 1) for found in (swapped, other, masked)]
    differs = [[getattr(step, name) != planned[name] for name in names] for step in steps]
    assert differs == [[True, True], [True, True], [False, True]]


def test_steps_are_written_as_they_end_and_a_run_that_diverges_is_not(plan, tmp_path):
    """A loss that is no number ends the run; what was written before stays."""
    writer, found = StepWriter(tmp_path / "run"), consumed(plan, 0, 1, 1)
    writer.add(line_of(found), found, 5, 6)
    assert (tmp_path / "run" / STEPS).read_text().count("\n") == 1
    with pytest.raises(ContractError, match="step 0: loss is nan: the run has diverged"):
        writer.add(line_of(found, float("nan")), found, 6, 7)
    writer.close(StackFacts("s", "cpu", "d", 1, "0"))
    assert (tmp_path / "run" / STEPS).read_text().count("\n") == 1
    assert asdict(timed_step(line_of(found), found, 5, 6))["end_ns"] == 6
