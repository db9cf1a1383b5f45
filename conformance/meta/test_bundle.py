"""Bundles: whole or absent, and every wrong one refused with one sentence."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.bundle_writer import BundleWriter, ExchangeWriter
from conformance.contract.digest import sha256_file
from conformance.contract.errors import ContractError, NotRecorded
from conformance.contract.recipe import Generation

FACTS = {"template_sha256": "x", "bos_id": 2, "eos_ids": [1, 5], "pad_id": 0}


@pytest.fixture
def bundle(tmp_path, recipe, plan):
    with BundleWriter(tmp_path / "bundle", stack="port", recipe=recipe, plan=plan) as writer:
        writer.array("tokens", "rows", np.arange(3, dtype=np.int32))
        writer.array("logits", "f32/base/logits", np.ones((2, 3, 4), np.float32))
        writer.line("tokens", "facts", **FACTS)
    return Bundle(tmp_path / "bundle")


def test_a_bundle_reads_back(bundle):
    """What was recorded is what is read."""
    assert bundle.rungs == ("tokens", "logits")
    assert bundle.array("tokens", "rows").tolist() == [0, 1, 2]
    assert bundle.lines("tokens", "facts") == [{"series": "facts", **FACTS}]
    assert bundle.arrays("logits", "f32/base/")["logits"].shape == (2, 3, 4)


def test_a_bundle_gives_its_recipe_back(tmp_path, recipe, plan):
    """A recipe that does not clip, with prompts from its own rows, has nulls in recipe.json."""
    odd = dataclasses.replace(recipe, optimizer=dataclasses.replace(recipe.optimizer, clip_norm=None), generation=Generation())
    with BundleWriter(tmp_path / "bundle", stack="port", recipe=odd, plan=plan) as writer:
        writer.line("tokens", "facts", **FACTS)
    read = Bundle(tmp_path / "bundle").recipe
    assert (read.optimizer.clip_norm, read.generation.rows) == (None, None)
    assert read.digest == odd.digest != recipe.digest


@pytest.mark.parametrize(
    ("rung", "key", "value", "words"),
    [
        ("tokens", "rowz", np.zeros(1, np.int32), "'rowz' is not in the schema"),
        ("tokens", "rows", np.zeros(1, np.int64), "int64, not int32"),
        ("tokens", "rows", np.zeros((1, 1), np.int32), "shape (1, 1), not [R]"),
        ("logits", "f32/base/logits", np.full((1, 1, 1), np.nan, np.float32), "NaN or infinity"),
        ("logits", "f32/base/logits", np.full((1, 1, 1), np.inf, np.float32), "NaN or infinity"),
        ("nowhere", "rows", np.zeros(1, np.int32), "not in the schema"),
    ],
)
def test_a_wrong_array_is_refused(tmp_path, recipe, plan, rung, key, value, words):
    """The error says what is wrong, and no bundle appears."""
    with (
        pytest.raises(ContractError) as error,
        BundleWriter(tmp_path / "bundle", stack="port", recipe=recipe, plan=plan) as writer,
    ):
        writer.array(rung, key, value)
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({**FACTS, "bos_id": "2"}, "tokens: facts.bos_id = '2' is str, not int"),
        ({**FACTS, "bos_id": True}, "is bool, not int"),
        ({**FACTS, "more": 1}, "missing or unknown: ['more']"),
        ({"bos_id": 2}, "missing or unknown: ['eos_ids', 'pad_id', 'template_sha256']"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path, recipe, plan, fields, words):
    """Fields are exactly the schema's, with the schema's types."""
    with (
        pytest.raises(ContractError) as error,
        BundleWriter(tmp_path / "bundle", stack="port", recipe=recipe, plan=plan) as writer,
    ):
        writer.line("tokens", "facts", **fields)
    assert words in str(error.value)


@pytest.fixture
def part(tmp_path, recipe, plan):
    """A bundle that says of *adapters* and *logits* that they are recorded in part."""
    with BundleWriter(tmp_path / "part", stack="port", recipe=recipe, plan=plan) as writer:
        writer.partial("adapters", "no training here")
        writer.partial("logits", "one")
        writer.partial("logits", "two")
        writer.line("adapters", "facts", trainable_params=7)
        writer.array("logits", "f32/base/logits", np.ones((2, 3, 4), np.float32))
        writer.line("tokens", "facts", **FACTS)
    return Bundle(tmp_path / "part")


def test_a_partial_rung_gives_what_it_has(part):
    assert part.partial == {"adapters": "no training here", "logits": "one; two"}
    (line,) = part.lines("adapters", "facts")
    assert line["trainable_params"] == line.get("trainable_params") == 7
    assert part.array("logits", "f32/base/logits").shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda b: b.lines("adapters", "facts")[0]["total_params"], "without facts.total_params: no training here"),
        (lambda b: b.lines("adapters", "facts")[0].get("total_params", 0), "without facts.total_params"),
        (lambda b: b.lines("adapters", "scale"), "without line 'scale'"),
        (lambda b: b.array("logits", "bf16/base/logits"), "without array 'bf16/base/logits': one; two"),
        (lambda b: b.arrays("logits", "bf16/"), "without arrays bf16/"),
    ],
)
def test_what_a_partial_rung_has_not_is_said_so(part, ask, words):
    """Series, arrays and fields: never a default, never an empty list."""
    with pytest.raises(NotRecorded) as error:
        ask(part)
    assert f"port recorded {'adapters' if 'facts' in words or 'scale' in words else 'logits'} in part, {words}" in str(error.value)


def test_a_whole_rung_has_no_gaps(part, tmp_path, recipe, plan):
    """Control: in a rung that is not called partial, an absent series is empty, for its check to judge, and a gap is refused."""
    assert part.lines("batches", "steps") == [] and part.arrays("tokens", "rows") == {}
    with (
        pytest.raises(ContractError, match="missing or unknown"),
        BundleWriter(tmp_path / "gap", stack="port", recipe=recipe, plan=plan) as writer,
    ):
        writer.partial("adapters", "another rung")
        writer.line("tokens", "facts", bos_id=2)


def test_only_rungs_can_be_partial(tmp_path, recipe, plan):
    with (
        pytest.raises(ContractError, match="rung 'logit' is not one of tokens"),
        BundleWriter(tmp_path / "b", stack="port", recipe=recipe, plan=plan) as writer,
    ):
        writer.partial("logit", "mistyped")


def test_an_array_is_recorded_once(tmp_path, recipe, plan):
    """A second array under one key is an error, not the last one's victory."""
    with (
        pytest.raises(ContractError, match="recorded twice"),
        BundleWriter(tmp_path / "b", stack="port", recipe=recipe, plan=plan) as writer,
    ):
        writer.array("tokens", "rows", np.zeros(1, np.int32))
        writer.array("tokens", "rows", np.zeros(1, np.int32))


def test_an_existing_bundle_is_not_overwritten(bundle, recipe, plan):
    """The writer refuses a path that is taken."""
    with pytest.raises(ContractError, match="already there"):
        BundleWriter(bundle.path, stack="port", recipe=recipe, plan=plan)


def test_a_killed_recorder_leaves_no_bundle(tmp_path):
    """SIGKILL in the middle of a recording: nothing reads as a bundle."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from conformance.contract.bundle_writer import BundleWriter\n"
        "from conformance.contract.plan import make_plan\n"
        "from conformance.contract.recipe import load_recipe\n"
        "recipe = load_recipe(sys.argv[1])\n"
        "with BundleWriter(sys.argv[2], stack='port', recipe=recipe, plan=make_plan(recipe)) as writer:\n"
        "    writer.folder('adapter').mkdir()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    recipe = os.path.join(os.path.dirname(__file__), "..", "recipes", "tiny.toml")  # noqa: PTH118, PTH120
    done = subprocess.run([sys.executable, "-c", code, recipe, str(tmp_path / "bundle")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert any(tmp_path.iterdir())
    assert not (tmp_path / "bundle").exists()
    with pytest.raises(ContractError, match="not a bundle, or its recorder was stopped"):
        Bundle(tmp_path / "bundle")


def rewrite(bundle: Bundle, name: str, data: bytes, *, sign: bool) -> None:
    """Another content for a file; `sign` writes its digest into the manifest as well."""
    (bundle.path / name).write_bytes(data)
    if sign:
        manifest = bundle.manifest | {"files": bundle.manifest["files"] | {name: sha256_file(bundle.path / name)}}
        (bundle.path / MANIFEST).write_text(json.dumps(manifest))


def test_a_truncated_file_is_refused(bundle):
    """A safetensors file cut short is named, even when the manifest was made to agree."""
    data = (bundle.path / "logits.safetensors").read_bytes()
    rewrite(bundle, "logits.safetensors", data[:-5], sign=True)
    with pytest.raises(ContractError, match=r"logits\.safetensors: not a whole safetensors file"):
        Bundle(bundle.path).arrays("logits")


@pytest.mark.parametrize("keep", [0, 4, 8, 20])
def test_a_stump_is_refused(bundle, keep):
    """So is a file of a few bytes."""
    data = (bundle.path / "logits.safetensors").read_bytes()
    rewrite(bundle, "logits.safetensors", data[:keep], sign=True)
    with pytest.raises(ContractError, match="not a whole safetensors file"):
        Bundle(bundle.path).arrays("logits")


def test_an_edited_file_is_refused(bundle):
    """A file that is not the recorded one is named on opening."""
    rewrite(bundle, "tokens.jsonl", b"{}", sign=False)
    with pytest.raises(ContractError, match=r"tokens\.jsonl is not the file that was recorded"):
        Bundle(bundle.path)


def test_a_missing_part_is_refused(bundle):
    """A file that the manifest names must be there."""
    (bundle.path / "plan.json").unlink()
    with pytest.raises(ContractError, match=r"plan\.json is missing"):
        Bundle(bundle.path)


def test_another_version_is_refused(bundle):
    """The suite says which version it reads."""
    (bundle.path / MANIFEST).write_text(json.dumps(bundle.manifest | {"version": 99}))
    with pytest.raises(ContractError, match="version 99; this suite reads 1"):
        Bundle(bundle.path)


def test_a_missing_array_is_named(bundle):
    """Asking for what was not recorded says so."""
    with pytest.raises(ContractError, match="tokens has no array 'ids'"):
        bundle.array("tokens", "ids")


def test_an_exchange_may_be_recorded_with_its_bundle(bundle, tmp_path, recipe, plan):
    """A recorder that has the peer's bundle already writes both phases at once; without the second there is none (control)."""
    path = tmp_path / "both"
    first_phase = BundleWriter(path, stack="reference", recipe=recipe, plan=plan)
    with first_phase as writer, ExchangeWriter(writer, bundle, plan) as exchange:
        exchange.array("adapter/logits", np.ones((2, 3, 4), np.float32))
    assert list(Bundle(path).exchange) == ["adapter/logits"]
    assert Bundle(path).exchange_peer == sha256_file(bundle.path / MANIFEST)
    assert not bundle.exchanged
