"""What is written of a server: manifests and their comparison, a rung that comes later, who is recognised by what it answers."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from conformance.cli import main as parity
from conformance.commands import ROOT
from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import RungWriter
from conformance.contract.errors import ContractError, NotRecorded
from conformance.contract.probes import prompt_messages
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.serving import cpu
from conformance.contract.serving.api import Reply
from conformance.contract.serving.command import main
from conformance.contract.serving.identity import check_answers, check_weights, merged_digests, recorded_logprobs
from conformance.contract.serving.manifest import DECISIVE, NAMED, differences, flat, write_manifest
from conformance.meta.synthetic import write_bundle

LINE = {"of": "alone", "prompt": 0, "sent_tokens": 3, "prompt_tokens": 3, "same_prompt_ids": True, "completion_tokens": 1}


@pytest.fixture
def bundle(tmp_path, recipe, plan) -> Bundle:
    return write_bundle(tmp_path / "port", "port", recipe, plan)


def manifest(**changes) -> dict:
    """A server's, with some settings changed; `vllm` is its version."""
    settings = {name: "x" for name in (*DECISIVE, *NAMED) if "." not in name} | {"port": 8000, "checkpoint": "/here"}
    said = {name.removeprefix("read_back."): "x" for name in DECISIVE if name.startswith("read_back.")}
    version = changes.pop("vllm", "0.19.0")
    return {"version": 1, "settings": settings | changes, "read_back": said, "versions": {"vllm": version}}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"port": 9000, "checkpoint": "/there"}, 0, "set alike"),
        ({"platform": "gpu", "vllm": "0.20.2", "tensor_parallel": 2}, 0, "named in results"),
        ({"kv_dtype": "fp8_e5m2"}, 1, "must be equal"),
        ({"prefix_caching": True}, 1, "must be equal"),
    ],
)
def test_manifests_are_compared(changes, code, words, tmp_path, capsys):
    """What decides numbers must be equal; versions and devices may differ and are named; ports and folders are nobody's business."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, values in zip(paths, (manifest(), manifest(**changes)), strict=True):
        write_manifest(path, values)
    assert parity(["serve", "--compare", *map(str, paths)]) == code
    text = capsys.readouterr().out
    assert words in text
    assert all(name in text or name in ("port", "checkpoint", "vllm") for name in changes)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "settings": {}}'])
def test_what_is_no_manifest_is_refused(text, tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert parity(["serve", "--compare", str(path), str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_value_that_one_side_lacks_is_a_difference():
    """An older server that does not say what its cache is made of."""
    said = flat(manifest())
    found = differences(said, {name: value for name, value in said.items() if name != "read_back.cache_dtype"})
    assert [str(one) for one in found] == ["read_back.cache_dtype: x against not recorded"]


def test_a_rung_may_come_later(bundle, plan):
    """It lies in a folder of its own, and is read like any other; the bundle's own manifest stays what its peer has seen."""
    before = (bundle.path / "manifest.json").read_bytes()
    with RungWriter(bundle, "serving", plan) as writer:
        writer.line("reply", **LINE, finish_reason="stop")
        writer.array("forced/argmax", np.zeros((16, 4), np.int32))
    again = Bundle(bundle.path)
    assert again.has("serving") and "serving" in again.rungs
    assert again.lines("serving", "reply")[0]["finish_reason"] == "stop"
    assert again.array("serving", "forced/argmax").shape == (16, 4)
    assert (bundle.path / "manifest.json").read_bytes() == before
    assert parity(["validate", str(bundle.path)]) == 0


def test_a_later_rung_is_held_to_the_schema(bundle, plan):
    with pytest.raises(ContractError, match="missing or unknown"), RungWriter(bundle, "serving", plan) as writer:
        writer.line("reply", **LINE)
    assert list(bundle.path.glob(".serving*")) == [] and not (bundle.path / "serving").exists()


def test_a_rung_of_another_bundle_is_refused(bundle, plan):
    """The stack recorded anew, and the server's answers are of the old merge."""
    with RungWriter(bundle, "serving", plan) as writer:
        writer.line("reply", **LINE, finish_reason="stop")
    path = bundle.path / "manifest.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(ContractError, match="recorded for another bundle"):
        Bundle(bundle.path).has("serving")


def test_a_changed_file_of_a_later_rung_is_refused(bundle, plan):
    with RungWriter(bundle, "serving", plan) as writer:
        writer.line("reply", **LINE, finish_reason="stop")
    path = bundle.path / "serving" / "serving.jsonl"
    path.write_text(path.read_text().replace("stop", "length"))
    with pytest.raises(ContractError, match="sha256 differs"):
        Bundle(bundle.path).has("serving")


def test_without_controls_they_are_not_proven(bundle, plan):
    with RungWriter(bundle, "serving", plan) as writer:
        writer.partial("controls would take two more hours")
        writer.line("reply", **LINE, finish_reason="stop")
    with pytest.raises(NotRecorded, match="two more hours"):
        Bundle(bundle.path).array("serving", "control.base/ids")


def test_without_vllm_the_bundle_says_why(bundle, recipe, tmp_path, monkeypatch):
    """The rung is not proven, and recording it is no error."""
    monkeypatch.setenv(cpu.PYTHON, "/no/such/python")
    file = write_recipe(tmp_path / "recipe.toml", recipe)
    assert main(cpu.PLATFORM, ["--bundle", str(bundle.path), "--record", "--recipe", str(file)]) == 0
    again = Bundle(bundle.path)
    assert not again.has("serving")
    assert "/no/such/python is no program here" in again.not_recorded["serving"]


def test_another_recipe_is_refused(bundle, capsys):
    recipe = ["--recipe", str(ROOT / "conformance" / "recipes" / "paper-tpu.toml")]
    assert main(cpu.PLATFORM, ["--bundle", str(bundle.path), "--record", *recipe]) == 2
    assert "is not the recipe of bundle" in capsys.readouterr().err


def test_the_prompts_have_their_conversations(plan):
    """As a chat API takes them: the template makes the prompts' ids of them."""
    for messages, prompt in zip(prompt_messages(plan), plan.prompts, strict=True):
        turns = tuple((turn["role"], turn["content"]) for turn in messages)
        assert turns[-1][0] != "assistant"
        assert plan.tokenizer.encode_prompt(turns).tolist() == prompt.tolist()


def test_only_the_merged_files_are_taken(pair):
    """Control: the base's files, another file, and a shard too few are refused by their digests."""
    merged = merged_digests(pair.port)
    check_weights(pair.port, merged)
    first = min(merged)
    for wrong, words in (
        (pair.port.manifest["checkpoint_sha256"], "are the base's"),
        (merged | {first: "0" * 64}, f"{first} is not the file"),
        ({name: digest for name, digest in merged.items() if name != first}, f"{first} is not the file"),
    ):
        with pytest.raises(ContractError, match=words):
            check_weights(pair.port, wrong)


@dataclass(frozen=True)
class Recorded:
    """A server that answers the probes with given log-probabilities [P,T]."""

    logprobs: np.ndarray
    plan: object

    def together(self, ask, inputs):
        rows = zip(self.logprobs, self.plan.probes.attention, strict=True)
        return [Reply([], [], [], row[attended == 1][1:].tolist(), [], 0, 0, "length") for row, attended in rows]


def test_who_answers_is_told_by_the_answers(pair, plan):
    """Control: the merged model in float32 is taken; in bfloat16 its own rounding too; the base and half a merge are not."""
    keys = (("merge", "trained/merged/logits"), ("logits", "f32/base/logits"), ("logits", "bf16/base/logits"))
    merged, base, rounded = (recorded_logprobs(pair.port, plan, *key) for key in keys)
    rounding = rounded - base
    for logprobs, dtype, is_taken in (
        (merged, "float32", True), (merged + rounding, "bfloat16", True), (merged + rounding, "float32", False),
        (base, "float32", False), (base, "bfloat16", False), ((merged + base) / 2, "bfloat16", False),
    ):  # fmt: skip
        server = Recorded(logprobs, plan)
        if is_taken:
            assert "allowed" in check_answers(server, pair.port, plan, dtype=dtype, kv_dtype="auto")
        else:
            with pytest.raises(ContractError, match="does not answer as the merged checkpoint"):
                check_answers(server, pair.port, plan, dtype=dtype, kv_dtype="auto")


def test_a_manifest_is_written_whole(tmp_path):
    """Beside its name and renamed."""
    write_manifest(tmp_path / "a.json", manifest())
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert json.loads((tmp_path / "a.json").read_text()) == manifest()
