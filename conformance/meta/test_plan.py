"""The plan: which rows are kept, their order, and the steps."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

from conformance.contract.draws import initial_adapter, perturbed, warm_state
from conformance.contract.errors import ContractError
from conformance.contract.plan import EMPTY, make_plan
from conformance.contract.rows import read_rows, strip_reasoning


def with_rows(recipe, path, rows, **data):
    """`recipe` on a rows file with these records."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, rows=str(path), **data),
        schedule=dataclasses.replace(recipe.schedule, warmup_steps=0),
    )


def row(answer="assign out = in;", prompt="Write a wire."):
    return {"prompt": prompt, "response": answer}


def test_the_tiny_plan(plan):
    """202 of 205 rows are kept: one is over-long, two have no answer; the last step is partial."""
    assert len(plan.rows) == 202
    assert sorted(reason.split()[-1] for _, reason in plan.dropped) == ["1024", "answer", "answer"]
    assert plan.total_steps == 51
    assert [len(step.rows) for step in plan.steps] == [4] * 50 + [2]


def test_every_row_is_planned_once(plan):
    """The order is a permutation of the kept rows, and not the file's."""
    assert sorted(plan.order) == [row.row for row in plan.rows] != list(plan.order)


@pytest.mark.parametrize(("accumulation", "shards"), [(1, 1), (2, 2), (4, 1), (1, 4)])
def test_other_splits_have_the_same_steps(plan, accumulation, shards):
    """The split does not decide which rows a step has."""
    split = plan.with_batch(accumulation, shards)
    assert [set(step.rows) for step in split] == [set(step.rows) for step in plan.steps]


def test_a_split_of_another_batch_is_refused(plan):
    """A split that does not give the effective batch is an error with the numbers."""
    with pytest.raises(ContractError, match="micro_batch 3 x accumulation 2 x shards 1 is not the effective batch 4"):
        plan.with_batch(2, 1, 3)


def test_gradients_are_checked_where_micro_batches_weigh_differently(recipe, plan, tmp_path):
    """The first step whose micro-batches hold different numbers of targets: elsewhere a mean of means is no fault. Else the first."""
    assert plan.warm_rows.index == 0
    alike = make_plan(with_rows(recipe, tmp_path / "alike.jsonl", [row() for _ in range(8)], epochs=1))
    assert alike.warm_rows.index == 0
    one_longer = [row(answer="assign out = in & in;" if index == alike.steps[1].rows[0] else "assign out = in;") for index in range(8)]
    assert make_plan(with_rows(recipe, tmp_path / "longer.jsonl", one_longer, epochs=1)).warm_rows.index == 1


def test_the_last_step_is_filled_with_empty_rows(plan):
    """Every micro-batch has its full number of places; missing rows are empty ones."""
    last = [row for micro in plan.steps[-1].micros for shard in micro for row in shard]
    assert last.count(EMPTY) == 2


@pytest.mark.parametrize(
    "record",
    [
        row(),
        {"prompt": "p", "completion": "c"},
        {"instruction": "i", "output": "o"},
        {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]},
    ],
    ids=lambda record: "/".join(record),
)
def test_every_row_format_is_read(recipe, tmp_path, record):
    """CodeV-R1's fields, completions, instructions and messages are all rows."""
    assert len(make_plan(with_rows(recipe, tmp_path / "rows.jsonl", [record])).rows) == 1


def test_a_dataset_folder_is_read(recipe, tmp_path, plan):
    """A Hugging Face dataset folder gives the plan of the same rows as JSON Lines."""
    datasets = pytest.importorskip("datasets", reason="the datasets library is not installed")
    records = [json.loads(line) for line in recipe.rows_file.read_text().splitlines()]
    datasets.Dataset.from_list(records).save_to_disk(str(tmp_path / "rows"))
    moved = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, rows=str(tmp_path / "rows")))
    assert make_plan(moved).digest == plan.digest


@pytest.mark.parametrize(
    ("rows", "data", "words"),
    [
        ([], {}, "no rows in it"),
        ([row("")], {}, "none of 1 rows is kept"),
        ([row("<think>only this</think>")], {}, "empty answer"),
        ([{"question": "q"}], {}, "row 0 has keys ['question']; allowed: prompt/response"),
        ([{"prompt": 1, "response": "a"}], {}, "all text"),
        ([row("x " * 2000)], {"overlong": "error"}, "over data.max_tokens = 1024"),
        ([row("\ue0f0")], {}, "which the contract reserves"),
    ],
)
def test_bad_rows_are_refused(recipe, tmp_path, rows, data, words):
    """Every error says which row and what is allowed."""
    with pytest.raises(ContractError) as error:
        make_plan(with_rows(recipe, tmp_path / "rows.jsonl", rows, **data))
    assert words in str(error.value)


def test_a_line_that_is_not_json_is_named(recipe, tmp_path):
    """The error names file and line."""
    broken = with_rows(recipe, tmp_path / "rows.jsonl", [row()])
    broken.rows_file.write_text(broken.rows_file.read_text() + "{oops\n")
    with pytest.raises(ContractError, match=r"rows\.jsonl:2: not JSON"):
        make_plan(broken)


def test_over_long_rows_can_be_truncated(recipe, tmp_path):
    """Truncation keeps the first max_tokens tokens; a prompt over the limit leaves no answer token and is dropped."""
    rows = [row("x " * 2000), row(prompt="word " * 2000)]
    plan = make_plan(with_rows(recipe, tmp_path / "rows.jsonl", rows, overlong="truncate"))
    assert [len(one.ids) for one in plan.rows] == [1024]
    assert plan.dropped == ((1, "no answer token within the limit"),)


def test_reasoning_is_stripped():
    """`<think>` goes, answer marks and fence stay."""
    assert strip_reasoning("<think>a\nb</think>\n<answer>c</answer>") == "<answer>c</answer>"


def test_stripping_can_be_off(recipe):
    """Control: without stripping the reasoning stays in the answers."""
    kept = read_rows(recipe.rows_file, strip=False)
    assert any("<think>" in one.answer for one in kept)


def test_learning_rates_start_at_0_and_peak_after_warm_up(plan, recipe):
    """Linear warm-up from exactly 0, the peak at the end of it, then falling."""
    rates = plan.learning_rates
    assert rates[0] == 0
    assert rates[recipe.schedule.warmup_steps] == recipe.optimizer.learning_rate == rates.max()
    assert (np.diff(rates[recipe.schedule.warmup_steps :]) < 0).all()


def test_probes_see_past_two_windows(plan):
    """At least half of the probes are longer than two sliding windows, and some are shorter."""
    lengths = plan.probes.attention.sum(1)
    assert (lengths > 2 * plan.topology.window).sum() >= len(lengths) // 2
    assert lengths.min() <= plan.topology.window


def test_the_long_probe_reaches_where_bfloat16_no_longer_counts(plan):
    """It begins as probe 0 and goes on; some of its positions are not bfloat16's."""
    probes = plan.probes
    assert np.array_equal(probes.long[: len(probes.ids[0])], probes.ids[0])
    positions = np.arange(len(probes.long), dtype=np.float32)
    assert (positions.astype(ml_dtypes.bfloat16) != positions).sum() >= 8
    assert np.array_equal(positions[:257].astype(ml_dtypes.bfloat16), positions[:257])


def test_sizes_cannot_be_mixed_up(plan, recipe):
    """Hidden, intermediate, vocabulary, rank and every projection's width are pairwise different; hidden is no square."""
    widths = {w.out_features for w in plan.topology.adapted(recipe.adapter.targets)}
    sizes = [plan.topology.intermediate, plan.topology.vocabulary, recipe.adapter.rank]
    assert not set(sizes) & (widths - {plan.topology.intermediate, plan.topology.hidden})
    assert len({plan.topology.hidden, *sizes}) == 4
    assert np.sqrt(plan.topology.hidden) % 1


def test_draws_are_keyed_by_name(plan, recipe):
    """A tensor's draw does not depend on which others are drawn."""
    weights = plan.topology.adapted(recipe.adapter.targets)
    some = initial_adapter(recipe, weights[3:5])
    assert all((initial_adapter(recipe, weights)[name] == value).all() for name, value in some.items())


def test_perturbation_is_two_ulp_at_most(plan, recipe):
    """Only A moves, by at most 2 ulp, and differently in every run."""
    adapter = warm_state(recipe, plan.topology.adapted(recipe.adapter.targets)[:1]).adapter
    (a, b), moved = sorted(adapter), perturbed(adapter, 0)
    assert np.abs((moved[a] - adapter[a]) / np.spacing(adapter[a])).max() == 2
    assert (moved[b] == adapter[b]).all()
    assert (perturbed(adapter, 1)[a] != moved[a]).any()
