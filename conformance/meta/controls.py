"""For every check of the ladder: a small change of a recorded bundle that it must see (its negative control)."""

import numpy as np

from conformance.meta.tamper import Change, array, every, first, without_last


def add(place: int, value: float):
    """Adds `value` to one element."""

    def edit(array_: np.ndarray) -> np.ndarray:
        array_.flat[place] += np.asarray(value, array_.dtype)
        return array_

    return edit


def add_at_end(value: float):
    """Adds `value` to the last position of a row [1,T,V]."""

    def edit(array_: np.ndarray) -> np.ndarray:
        array_[:, -1] += np.asarray(value, array_.dtype)
        return array_

    return edit


def put(place: int, value: float):
    def edit(array_: np.ndarray) -> np.ndarray:
        array_.flat[place] = value
        return array_

    return edit


def times(factor: float):
    return lambda value: type(value)(value * factor) if isinstance(value, float) else (value * factor).astype(value.dtype)


def head(value):
    """Replaces the first item of a list."""
    return lambda items: [value, *items[1:]]


def run_step(run: str, least: int, **edits) -> Change:
    return every("trajectory", "step", where=lambda line: line["run"].startswith(run) and line["step"] >= least, **edits)


def on_mesh(series: str, mesh: str, stack: str = "port", **edits) -> Change:
    return every("sharding", series, stack, where=lambda line: line["mesh"] == mesh, **edits)


def swap_rows(lines: list[dict]) -> list[dict]:
    a, b = lines[0], lines[1]
    return [a | {"rows": b["rows"]}, b | {"rows": a["rows"]}, *lines[2:]]


def without_accumulator(lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["group"] != "accumulator"]


def without_step(lines: list[dict]) -> list[dict]:
    """The coupled run a step short."""
    last = max(line["step"] for line in lines if line["run"] == "f32")
    return [line for line in lines if (line["run"], line["step"]) != ("f32", last)]


def next_float32(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(1)))


EMPTY_ROWS = every(
    "batches", "consumed", where=lambda line: -1 in line["rows"], loss_tokens=lambda items: [1 for _ in items]
)

CONTROLS: dict[str, Change] = {
    # tokens
    "test_the_same_rows_are_kept": array("tokens", "rows", lambda rows: rows[:-1]),
    "test_token_ids_are_equal": array("tokens", "ids", add(7, 1)),
    "test_loss_masks_are_equal": array("tokens", "loss_mask", lambda mask: np.roll(mask, 1)),
    "test_every_row_starts_with_its_only_bos": array("tokens", "ids", put(1, 2)),
    "test_the_turn_end_is_learnt": array("tokens", "loss_mask", lambda mask: np.roll(mask, -1)),
    "test_special_ids_and_template_are_equal": first("tokens", "facts", eos_ids=lambda ids: ids[:1]),
    # batches
    "test_every_micro_batch_takes_its_rows": Change("port", "batches", "consumed", swap_rows, lines=True),
    "test_consumed_ids_are_the_rows_ids": first("batches", "consumed", ids_sha256=head("0")),
    "test_consumed_loss_masks_are_the_rows_masks": first("batches", "consumed", mask_sha256=head("0")),
    "test_padding_is_not_attended": first("batches", "consumed", attended=lambda n: [n[0] + 1, *n[1:]]),
    "test_empty_rows_weigh_nothing": EMPTY_ROWS,
    "test_no_row_is_seen_twice_in_an_epoch": first("batches", "consumed", rows=lambda rows: [rows[0], rows[0]]),
    "test_steps_have_the_same_tokens": first("batches", "steps", tokens=lambda n: n + 1),
    "test_the_epoch_has_the_same_tokens": first("batches", "steps", loss_tokens=lambda n: n + 1),
    "test_learning_rates_are_the_tables": every("batches", "steps", learning_rate=next_float32),
    "test_accumulation_and_shards_do_not_change_the_step": first("batches", "variants", rows=lambda rows: rows[1:]),
    "test_the_loss_does_not_depend_on_padding": every(
        "batches", "padding", where=lambda x: x["side"] == "left", loss=times(1.0001)
    ),
    # weights
    "test_every_tensor_comes_back_bit_for_bit": first("weights", "tensors", sha256=lambda _: "0"),
    "test_the_tensors_are_the_same_set": without_last("weights", "tensors"),
    "test_what_is_left_out_is_named": Change(
        "port", "weights", "left_out", lambda lines: [*lines, {"name": "x", "reason": "y"}], lines=True
    ),
    "test_both_name_prefixes_load": first("weights", "prefixes", sha256=lambda _: "0"),
    "test_a_wrong_checkpoint_is_refused_by_name": first("weights", "refusals", refused=lambda _: False),
    # adapters
    "test_the_adapted_weights_are_the_recipes": without_last("adapters", "targets"),
    "test_every_layer_type_has_its_set": without_last("adapters", "targets"),
    "test_adapter_shapes_are_pefts": first("adapters", "targets", a_shape=lambda shape: shape[::-1]),
    "test_trainable_parameters_are_counted_equal": first("adapters", "facts", trainable_params=lambda n: n - 1),
    "test_only_adapters_have_moments": first("adapters", "facts", optimizer_leaves_remat=lambda names: [*names, "embed"]),
    "test_a_starts_with_the_recipes_spread": every("adapters", "own_init", std=times(2.449)),
    "test_the_seed_matters": every("adapters", "own_init", sha256=lambda _: "0"),
    "test_the_scale_is_the_recipes": first("adapters", "scale", measured=times(1.001)),
    "test_frozen_weights_do_not_move": first("adapters", "frozen", sha256_after=lambda _: "0"),
    # logits
    "test_float32_streams_are_as_exact_as_the_references": array("logits", "f32/warm/mlp", times(1.001)),
    "test_bfloat16_streams_are_as_exact_as_the_references": array("logits", "bf16/warm/hidden", times(1.05)),
    "test_float32_logits_are_as_exact_as_the_references": array("logits", "f32/warm/logits", times(1.0001)),
    "test_bfloat16_logits_are_as_exact_as_the_references": array("logits", "bf16/warm/logits", times(1.1)),
    "test_padding_does_not_change_the_logits": array("logits", r"f32/warm\.left/logits", times(1.0001)),
    "test_long_rows_are_as_exact_as_the_references": array("logits", "bf16/long/logits", add_at_end(1.0)),
    "test_the_softcap_acts_once": first("logits", "softcap", max_abs_logit=times(0.99)),
    "test_the_streams_have_the_same_dtypes": first("logits", "dtypes", dtype=lambda _: "float16"),
    # gradients
    "test_every_gradient_is_as_exact_as_the_references": array("gradients", r"f32/.*lora_B", times(1.001)),
    "test_every_gradient_points_the_same_way": array("gradients", r"f32/.*lora_A", times(-1.0)),
    "test_loss_and_global_norm_are_as_exact_as_the_references": every("gradients", "norms", grad_norm=times(1.0001)),
    "test_the_warm_norm_is_above_the_clip": every("gradients", "norms", grad_norm=times(1e-3)),
    "test_the_order_of_summation_does_not_matter": array("gradients", r"f32\.accumulation=1/.*", times(1.001)),
    "test_the_cold_step_moves_only_b": array("gradients", r"cold/.*lora_A", add(0, 1e-9)),
    # optimizer
    "test_first_moments_follow_the_formula": array("optimizer", r".*/3/m", times(1.0001)),
    "test_second_moments_follow_the_formula": array("optimizer", r".*/3/v", times(1.0001)),
    "test_updates_follow_the_formula": array("optimizer", r".*/0/update", times(1.01)),
    "test_the_clip_factor_follows_the_formula": every("optimizer", "clip", factor=times(0.9999)),
    # one_step
    "test_every_tensor_is_as_exact_as_the_references": array("one_step", r"f32/.*lora_B\.v", times(1.0001)),
    "test_the_norm_before_clipping_is_as_exact_as_the_references": every("one_step", "norms", grad_norm=times(1.0001)),
    # trajectory
    "test_the_run_is_long_enough": Change("port", "trajectory", "step", without_step, lines=True),
    "test_coupled_runs_stay_in_the_envelope": run_step("f32", 5, loss=times(1.001)),
    "test_the_reference_stays_in_its_own_envelope": every(
        "trajectory", "step", "reference", where=lambda x: x["run"] == "f32", loss=times(1.001)
    ),
    "test_steps_count_the_same_tokens_at_the_same_rate": run_step("f32", 5, tokens=lambda n: n + 1),
    "test_bfloat16_runs_stay_as_close_as_the_references": run_step("bf16", 0, loss=times(1.2)),
    "test_runs_with_dropout_are_equivalent": run_step("dropout", 0, loss=times(1.05)),
    "test_the_port_does_not_converge_faster": run_step("dropout", 0, loss=times(0.85)),
    # sharding
    "test_every_mesh_was_tried": without_last("sharding", "warm"),
    "test_every_mesh_takes_the_plans_rows": first("sharding", "consumed", shard_rows=lambda rows: [rows[0][::-1], *rows[1:]]),
    "test_warm_gradients_do_not_depend_on_the_mesh": array("sharding", r"fsdp=4,tp=2/.*lora_B", times(1.001)),
    "test_the_loss_and_the_clip_are_global": on_mesh("warm", "fsdp=8,tp=1", grad_norm=times(1.001)),
    "test_every_run_stays_in_the_envelope": on_mesh("step", "fsdp=8,tp=1", loss=times(1.002)),
    "test_the_step_compiles_once": first("sharding", "warm", compiles=lambda n: n + 1),
    "test_every_leaf_is_split_by_the_rule": on_mesh("leaf", "fsdp=8,tp=1", axes=lambda axes: [None] * len(axes)),
    "test_activations_are_split_over_the_mesh": every(
        "sharding", "leaf", where=lambda line: line["group"] == "stream", device_shape=lambda shape: [shape[0] * 2, *shape[1:]]
    ),
    "test_no_leaf_is_left_out": Change("port", "sharding", "leaf", without_accumulator, lines=True),
    "test_the_references_parameters_are_shards": on_mesh("leaf", "ranks=2", "reference", axes=lambda axes: [None] * len(axes)),
    "test_what_an_axis_does_not_divide_is_named": without_last("sharding", "fallback"),
    "test_memory_at_full_size_is_near_ideal": every("sharding", "abstract", device_bytes=lambda n: n * 2),
    "test_the_whole_state_fits_its_share": every("sharding", "abstract", device_bytes=lambda n: n * 2),
    "test_a_checkpoint_restores_on_another_mesh": first("sharding", "restore", equal=lambda _: False),
    "test_a_lost_process_ends_the_other_and_the_run_resumes": first("sharding", "lost", equal=lambda _: False),
    # checkpoint
    "test_a_resumed_run_is_the_uninterrupted_run": first("checkpoint", "resume", equal_moments=lambda _: False),
    "test_every_save_says_where_the_data_stand": first("checkpoint", "resume", saved_step=lambda _: None),
    "test_a_kill_loses_no_completed_save": first("checkpoint", "kill", equal=lambda _: False),
    # merge
    "test_the_ports_merge_is_the_rounded_exact_merge": array("merge", "loud/.*up_proj", lambda w: w * w.dtype.type(1.02)),
    "test_the_references_merge_is_within_an_ulp": array(
        "merge", "loud/.*up_proj", lambda w: w * w.dtype.type(1.02), "reference"
    ),
    "test_untouched_tensors_are_bit_equal": every("merge", "tensors", where=lambda x: not x["touched"], sha256=lambda _: "0"),
    "test_the_merged_checkpoint_has_the_bases_form": first("merge", "tensors", metadata_format=lambda _: ""),
    "test_the_files_are_what_was_recorded": first("merge", "tensors", sha256=lambda _: "0"),
    "test_merged_and_unmerged_models_agree": array("merge", "loud/merged/logits", times(1.5)),
    "test_each_stack_reads_the_others_files": array("exchange", "merged/logits", times(1.001)),
    # generation
    "test_float32_tokens_are_equal": array("generation", "f32/ids", add(0, 1)),
    "test_log_probabilities_agree": array("exchange", "forced/f32/logprobs", add(0, 0.1)),
    "test_the_cache_changes_nothing": array("generation", r"f32\.nocache/ids", add(0, 1)),
    "test_the_cache_keeps_the_log_probabilities": array("generation", "f32/forced_logprobs", add(0, 0.05)),
    "test_prompts_stop_in_both_ways": every("generation", "stops", reason=lambda _: "length"),
    "test_stops_are_equal": first("generation", "stops", new_tokens=lambda n: n - 1),
    "test_float32_choices_follow_the_token_rule": array("exchange", "forced/f32/argmax", lambda ids: ids + 1),
    "test_bfloat16_choices_follow_the_token_rule": array("exchange", "forced/bf16/argmax", lambda ids: ids + 1),
    # serving
    "test_the_merged_files_are_served": first("serving", "weights", sha256=lambda _: "0"),
    "test_both_servers_are_set_alike": every(
        "serving", "server", where=lambda x: x["setting"] == "kv_dtype", value=lambda _: "fp8_e5m2"
    ),
    "test_served_choices_follow_the_token_rule": array("serving", "forced/argmax", lambda ids: ids + 1),
    "test_served_tokens_are_the_references": array("serving", "alone/ids", add(0, 1)),
    "test_served_log_probabilities_agree": array("serving", "together/logprobs", add(0, 1e-3)),
    "test_served_prompt_log_probabilities_agree": array("serving", "alone/probe_logprobs", add(1, 1e-3)),
    "test_a_full_batch_changes_nothing": array("serving", "together/ids", add(0, 1)),
    "test_the_prompt_is_counted_as_sent": first("serving", "reply", prompt_tokens=lambda n: n + 1),
    "test_the_chat_path_makes_the_trainings_ids": first("serving", "chat", ids=lambda ids: ids[:-1]),
    "test_the_chat_path_has_one_bos": first("serving", "chat", ids=lambda ids: [ids[0], *ids]),
    "test_replies_stop_at_eos": first("serving", "reply", finish_reason=lambda _: "abort"),
}
