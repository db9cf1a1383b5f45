"""A port of somebody's own: the example in plain torch through the suite, the same with one line wrong, commands that fail."""

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from conformance.certificate import NAME as CERTIFICATE
from conformance.cli import main
from conformance.commands import FINDINGS, ROOT
from conformance.contract.bundle import MANIFEST, Bundle
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.recipe import load_recipe
from conformance.contract.recipe_writer import write_recipe
from conformance.contract.schema import RUNGS
from conformance.faults.grounds import fixtures
from conformance.faults.judging import failures
from conformance.faults.small import write_small
from conformance.findings import Verdict, read_findings
from conformance.meta.synthetic import write_bundle
from conformance.pair import Commands, Pair, exchange_problem, record_pair, record_stacks
from conformance.summary import summarise

EXAMPLE = ROOT / "fixtures" / "torch_port.py"
WHOLE, PARTIAL = ("tokens", "batches", "weights"), "logits"
FAULTS = [
    # (words of the example, what they become, rung and check that must see it first)
    ('** (torch.arange', '** (1e-3 + torch.arange', "logits", "test_float32_streams_are_as_exact_as_the_references"),
    ('tokenise(recipe.data.loss_scope), tokenise', 'tokenise("all"), tokenise', "tokens", "test_loss_masks_are_equal"),
]  # fmt: skip
PADDING = '{"loss":1.0,"precision":"f32","series":"padding","side":"Left","width":8}\n'
FACTS = '{"bos_id":2,"eos_ids":[1],"pad_id":0,"series":"facts","template_sha256":"x"}\n'


def python(*words: object) -> str:
    return shlex.join([sys.executable, *map(str, words)])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A recipe of 3 steps."""
    small = load_recipe(write_small(folder := tmp_path_factory.mktemp("small")))
    return write_recipe(folder / "three.toml", dataclasses.replace(small, data=dataclasses.replace(small.data, epochs=1)))


@pytest.fixture(scope="module")
def reference(small, tmp_path_factory) -> Path:
    """What the reference records of the rungs that the example has."""
    path = tmp_path_factory.mktemp("recorded") / "reference"
    record_stacks(small, {"reference": path}, (*WHOLE, PARTIAL))
    return path


def test_the_example_is_short():
    """Under 150 lines, and of the libraries only torch."""
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) < 150
    for name in ("transformers", "peft", "trl", "accelerate", "reference", "tpu_impl"):
        assert not re.search(rf"^\s*(import|from) {name}\b", text, re.M)


def test_the_example_passes_what_it_records(small, reference, tmp_path):
    """Rungs that it records whole pass; of the partial one no check fails; everything else is not proven; no certificate."""
    options = ["--recipe", str(small), "--reference-bundle", str(reference), "--out", str(tmp_path)]
    assert main(["check", "--port", python("-m", "fixtures.torch_port"), *options]) == 3
    findings = read_findings(tmp_path / FINDINGS)
    verdicts = {one.rung: one.verdict for one in summarise(findings)}
    assert verdicts == {rung: Verdict.PASS if rung in WHOLE else Verdict.NOT_PROVEN for rung in RUNGS}
    logits = {one.check: one for one in findings if one.rung == PARTIAL}
    passed = {name for name, one in logits.items() if one.verdict is Verdict.PASS}
    assert {"test_float32_logits_are_as_exact_as_the_references", "test_the_softcap_acts_once"} <= passed
    assert {one.verdict for one in logits.values()} == {Verdict.PASS, Verdict.NOT_PROVEN}
    reason = logits["test_bfloat16_logits_are_as_exact_as_the_references"].reason
    assert reason.startswith("port recorded logits in part, without array 'bf16/") and reason.endswith("padded on the right")
    assert not (tmp_path / CERTIFICATE).exists()
    assert Bundle(tmp_path / "port").rungs == (*WHOLE, PARTIAL)


@pytest.mark.parametrize(("words", "wrong", "rung", "check"), FAULTS)
def test_one_wrong_line_is_seen(words, wrong, rung, check, small, reference, tmp_path):
    """Control: the example with a few words changed fails, at the rung of what they mean."""
    text = EXAMPLE.read_text()
    assert text.count(words) == 1
    (tmp_path / "port.py").write_text(text.replace(words, wrong))
    record_stacks(small, {"port": tmp_path / "port"}, commands=Commands({"port": python(tmp_path / "port.py")}))
    pair = Pair(load_recipe(small), Bundle(reference), Bundle(tmp_path / "port"))
    first = next(failures(pair.reference, pair.port, fixtures(pair)))
    assert (first.rung, first.check) == (rung, check)


def _record(command: str, recipe: Path, out: Path) -> str:
    with pytest.raises(ContractError) as error:
        record_stacks(recipe, {"port": out}, commands=Commands({"port": command}))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("-c", "import sys; print('1\\n2', file=sys.stderr); sys.exit(7)"), ["ended with exit code 7", "its last lines: 1 | 2"]),
        (("-c", "raise ValueError('no such device')"), ["ended with exit code 1", "ValueError: no such device"]),
        (("-c", "pass"), ["ended with exit code 0 and wrote no bundle to", "its last lines: nothing"]),
    ],
)
def test_a_command_that_fails_is_told_in_one_sentence(words, parts, small, tmp_path):
    """Its words, its exit code and the end of its stderr."""
    message = _record(python(*words), small, tmp_path / "port")
    assert message.startswith("port: `") and f"--out {tmp_path / 'port'}`" in message
    assert all(part in message for part in parts)


@pytest.mark.parametrize(("command", "words"), [("no-such-port", "cannot be started"), ("a 'b", "cannot be split"), ("", "no command")])
def test_what_is_no_command_is_refused(command, words, small, tmp_path):
    assert words in _record(command, small, tmp_path / "port")


@pytest.mark.parametrize(
    ("stack", "edit", "words"),
    [
        ("port", ('"bos_id":2', '"bos_id":"2"'), "tokens.jsonl:1: tokens: facts.bos_id = '2' is str, not int"),
        ("reference", ("x", "y"), "stack = 'reference', not 'port'"),
    ],
)
def test_an_invalid_bundle_is_refused(stack, edit, words, recipe, plan, small, tmp_path):
    """File, line, field, what was found and what is allowed."""
    made = write_bundle(tmp_path / "made", stack, recipe, plan).path
    rewrite(made, "tokens.jsonl", lambda _: FACTS.replace(*edit))
    copy = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[-1])"
    message = _record(python("-c", copy, made), small, tmp_path / "port")
    assert "wrote an invalid bundle, one problem" in message and words in message


def rewrite(bundle: Path, name: str, edit) -> None:
    """Edits a file of a bundle and its digest: what a recorder that writes the files itself could do."""
    text = (bundle / name).read_text() if (bundle / name).exists() else ""
    (bundle / name).write_text(edit(text))
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["files"][name] = sha256_file(bundle / name)
    (bundle / MANIFEST).write_text(canonical_json(manifest))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tokens.jsonl", FACTS + "{", "tokens.jsonl:2: not JSON"),
        ("tokens.jsonl", FACTS + "[1]\n", "tokens.jsonl:2: '[1]' is list, not an object"),
        ("tokens.jsonl", FACTS.replace("[1]", '["1"]'), "facts.eos_ids holds '1', which is str; each item is int"),
        ("tokens.jsonl", FACTS.replace('"facts"', '"fact"'), "series 'fact' is not in the schema; allowed: facts"),
        ("tokens.jsonl", FACTS.replace('"pad_id":0,', ""), "missing or unknown: ['pad_id']"),
        ("batches.jsonl", PADDING, "'Left' is not one of left, right, none"),
        ("logit.jsonl", "", "'logit' is no rung: a rung's file is one of tokens, batches"),
    ],
)
def test_the_validator_names_file_line_and_field(name, text, words, recipe, plan, tmp_path, capsys):
    """And what was found, and what is allowed; exit code 2."""
    bundle = write_bundle(tmp_path / "bundle", "port", recipe, plan).path
    assert main(["validate", str(bundle)]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # rich folds lines
    assert "a valid bundle of the port" in shown and "missing, and so not proven: " in shown
    rewrite(bundle, name, lambda _: text)
    assert main(["validate", str(bundle)]) == 2
    assert f"parity: {bundle}/{name}" in (error := capsys.readouterr().err) and words in error


def test_a_file_without_a_digest_is_told(recipe, plan, tmp_path, capsys):
    bundle = write_bundle(tmp_path / "bundle", "port", recipe, plan).path
    (bundle / "tokens.jsonl").write_text(FACTS)
    assert main(["validate", str(bundle)]) == 2
    assert "tokens.jsonl: manifest.json has no sha256 of it" in capsys.readouterr().err


def test_a_bundle_and_a_command_for_one_stack_are_refused(recipe, tmp_path, capsys):
    assert main(["check", "--port", "true", "--port-bundle", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "--port and --port-bundle" in capsys.readouterr().err
    with pytest.raises(ContractError, match="--port and --port-bundle"):
        record_pair(recipe, tmp_path, None, tmp_path, Commands({"port": "true"}))


def test_a_command_has_no_exchange(recipe, plan, tmp_path):
    """What the two stacks make of each other's files is not proven, with the reason."""
    made = [write_bundle(tmp_path / stack, stack, recipe, plan) for stack in ("reference", "port")]
    assert "`my port`, which has no exchange" in exchange_problem(Pair(recipe, *made, Commands({"port": "my port"})))


def test_record_takes_a_command(small, tmp_path, capsys):
    """`parity record --command` runs it in the place of our stack, and validates what it wrote."""
    out = tmp_path / "port"
    assert main(["record", "port", "--recipe", str(small), "--out", str(out), "--command", python("-c", "pass")]) == 2
    assert "wrote no bundle" in capsys.readouterr().err
    out.mkdir()
    assert main(["record", "port", "--recipe", str(small), "--out", str(out), "--command", python("-c", "pass")]) == 2
    assert "already there" in capsys.readouterr().err
