"""The reviewer's package: whole, and checked anew; whatever is changed in it is found and named."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.bench.bundle_files import MANIFEST as MEASURED
from conformance.bench.bundle_files import digests_below
from conformance.bench.synthetic_training import write_manifest
from conformance.bench.training.measurements import read_manifest as read_training
from conformance.cli import main
from conformance.commands import ROOT
from conformance.contract.digest import canonical_json, sha256_file
from conformance.contract.errors import ContractError
from conformance.contract.progress import silent
from conformance.contract.recipe import load_recipe
from conformance.gate.evidence import Given
from conformance.package import copying
from conformance.package.build import build
from conformance.package.check import Difference, changed_files, check, lines
from conformance.package.conftest import write
from conformance.package.copying import copy_given
from conformance.package.layout import MANIFEST, STATED, read_manifest
from conformance.package.stated import differs, read_stated, stated, write_stated

TRAINING = "measurements/03-training-port"


def digest_again(package: Path) -> None:
    """The manifest says of every file what it is now: what only a second computation can see."""
    path = package / MANIFEST
    files = digests_below(package, *(one for one in package.rglob("*") if one.is_file() and one != path))
    write(path, canonical_json(json.loads(path.read_text()) | {"files": files}))


def test_a_package_holds_and_needs_no_stack(packed):
    """Nothing differs; neither torch nor jax is loaded, and it takes well under a minute."""
    code = (
        "import resource, sys; from conformance.cli import main; code = main(['check', sys.argv[1]]); "
        "seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime; "
        "print(code, sorted({'torch', 'jax', 'transformers'} & set(sys.modules)), seconds < 60)"
    )
    done = subprocess.run([sys.executable, "-c", code, packed], cwd=ROOT, capture_output=True, text=True, check=True)
    last, result = done.stdout.splitlines()[-2:]
    assert last == f"0 of {read_manifest(packed).values:,} stated values differ"
    assert result == "0 [] True"
    values = read_stated(packed / STATED)
    numbers = [value for value in values.values() if isinstance(value, float | int) and not isinstance(value, bool)]
    assert len(numbers) > 500
    assert {"claims > reportable", "counts > PASS", "level > name", "claims > claims > training time > value"} <= set(values)


def test_everything_is_in_it(packed, scene):
    """Recipe, rows, checkpoint, both bundles, raw events, all launches, prices, ledger, claims; copies, not links."""
    manifest = read_manifest(packed)
    names = set(manifest.files)
    assert {"pairs/1/recipe.toml", "pairs/1/rows.jsonl", "pairs/1/checkpoint/config.json", "pairs/1/port/manifest.json"} <= names
    assert {f"{TRAINING}/launch-{number}/steps.jsonl" for number in range(1, 6)} <= names
    assert {"claims.toml", "prices.toml", "tuning.toml", "report.html", "report.md", "findings.jsonl", "certificate.json"} <= names
    assert sum('"of":"training"' in launch for launch in manifest.launches) == 10
    assert all(one.stat().st_nlink == 1 and not one.is_symlink() for one in packed.rglob("*") if one.is_file())
    source = scene[0].pairs[0].port
    assert sha256_file(packed / "pairs/1/port/manifest.json") == sha256_file(source / "manifest.json")
    recipe = (packed / "pairs/1/recipe.toml").read_text()
    assert 'checkpoint = "checkpoint"' in recipe and str(ROOT) not in recipe


def test_an_edited_number_is_named_with_both_values(package, capsys):
    values = read_stated(package / STATED)
    name = "claims > claims > training time > value"
    true, values[name] = values[name], 3.5
    (package / STATED).unlink()
    write_stated(package / STATED, values)
    assert main(["check", str(package)]) == 1
    printed = capsys.readouterr().out
    assert f"{STATED}: not the file that was packed" in printed
    assert f"{name}: stated 3.5, computed {true!r}" in printed
    assert printed.splitlines()[-1].startswith("1 of ")


def test_what_is_digested_anew_is_computed_anew(package):
    """A raw time, the text of two pages and the certificate, each consistent with every digest."""
    training = package / TRAINING
    steps = training / "launch-1/steps.jsonl"
    first, *rest = steps.read_text().splitlines()
    last = json.loads(rest[-1])
    rest[-1] = canonical_json(last | {"end_ns": last["end_ns"] + 10**9})
    write(steps, "\n".join([first, *rest]) + "\n")
    launch = json.loads((training / "launch-1/launch.json").read_text())
    write(training / "launch-1/launch.json", canonical_json(launch | {"ended_ns": launch["ended_ns"] + 2 * 10**9}))
    measured = read_training(training)
    (training / MEASURED).unlink()
    write_manifest(training, measured)
    for name, old, new in (("report.html", "Certificate L0", "Certificate L2"), ("report.md", "claims may be", "claims must be")):
        write(package / name, (package / name).read_text().replace(old, new))
    certificate = json.loads((package / "certificate.json").read_text())
    write(package / "certificate.json", canonical_json(certificate | {"level": "L2"}))
    digest_again(package)
    outcome = check(package, silent)
    names = {one.name for one in outcome.differences}
    assert {"claims > claims > training time > value", "claims > claims > training cost > low"} <= names
    assert any(name.startswith("training > port") for name in names)
    assert not any(name.startswith("sections") for name in names)  # of the proof nothing was changed
    said = "\n".join(outcome.other)
    assert "certificate.json: level is not what the bundles give" in said
    assert "report.html: its text" in said and "report.md: its text" in said
    assert outcome.files == ()


def test_a_missing_launch_is_found(package):
    """Gone: by its digest. Gone from all manifests too: by the launches that are stated."""
    launch = package / TRAINING / "launch-2"
    for path in (*launch.iterdir(), launch):
        path.rmdir() if path.is_dir() else path.unlink()
    assert f"{TRAINING}/launch-2/steps.jsonl: missing" in changed_files(package, read_manifest(package))
    measured = read_training(package / TRAINING)
    (package / TRAINING / MEASURED).unlink()
    write_manifest(package / TRAINING, dataclasses.replace(measured, launches=4))
    digest_again(package)
    found = {one.name: one for one in check(package, silent).differences}
    (name,) = [one for one in found if one.endswith("launches > ok") and "port" in one]
    assert (found[name].stated, found[name].again) == (5, 4)


def test_a_bundle_that_does_not_open_leaves_every_value_unproven(package):
    """A changed byte of a bundle: its name, and that nothing could be computed."""
    path = package / "pairs/1/port/trajectory.jsonl"
    write(path, path.read_text() + "\n")
    outcome = check(package, silent)
    assert len(outcome.differences) == outcome.values > 1000
    assert "pairs/1/port/trajectory.jsonl: not the file that was packed (sha256 differs)" in outcome.files
    assert "nothing could be computed again: bundle pairs/1/port: trajectory.jsonl is not" in "".join(outcome.other)
    assert any(line.startswith("and ") for line in lines(outcome))


def test_foreign_files_and_links_are_named(package):
    (package / "more.txt").write_text("x")
    target = package / "prices.toml"
    text = target.read_text()
    target.unlink()
    (package.parent / "elsewhere.toml").write_text(text)
    target.symlink_to(package.parent / "elsewhere.toml")
    files = list(changed_files(package, read_manifest(package)))
    assert files == ["prices.toml: a symbolic link", f"more.txt: not in {MANIFEST}"]


@pytest.mark.parametrize("field", ["files", "left_out"])
@pytest.mark.parametrize("name", ["../prices.toml", "/etc/hostname"])
def test_a_manifest_names_nothing_outside(package, field, name):
    path = package / MANIFEST
    write(path, canonical_json(json.loads(path.read_text()) | {field: {name: "0" * 64}}))
    with pytest.raises(ContractError, match="which is not inside"):
        check(package, silent)


def test_a_name_is_shown_without_what_steers_a_terminal():
    assert str(Difference("a\x1b[2Jb", "\x1b", 1)) == "a[2Jb: stated '\\x1b', computed 1"


def test_weights_that_are_too_large_are_left_out_and_named(scene, tmp_path, monkeypatch):
    """The values are computed with them; a check asks for them, and holds them to their digests."""
    monkeypatch.setattr(copying, "MOST_WEIGHT_BYTES", 10)
    package = tmp_path / "package"
    given = Given(scene[0].pairs, prices=scene[0].prices)
    manifest = build(package, given, None, silent)
    weights = sorted(manifest.left_out)
    assert weights[0].startswith("pairs/1/checkpoint/model")
    assert not set(weights) & set(manifest.files)
    assert read_stated(package / STATED)["counts > FAIL"] == 0
    with pytest.raises(ContractError, match=r"too large to be packed: put the file there \(sha256 "):
        check(package, silent)
    source = load_recipe(scene[0].pairs[0].recipe).checkpoint_dir
    for name in weights:
        (package / name).symlink_to(source / Path(name).name)
    assert check(package, silent).holds
    (package / weights[0]).unlink()
    (package / weights[0]).write_bytes(b"x")
    assert f"{weights[0]}: not the file that was left out (sha256 differs)" in changed_files(package, read_manifest(package))


def test_the_ledger_beside_the_measurements_is_packed(scene, tmp_path):
    """The gate finds it there without --tuning, so a package that lacks it would withhold what the gate lets through."""
    given, claims = scene
    copy_given(dataclasses.replace(given, pairs=(), tuning=None), claims, tmp_path)
    assert (tmp_path / "tuning.toml").read_bytes() == given.tuning.read_bytes()


def test_pages_and_values_that_are_no_text_differ(package, capsys):
    """The digest tells so first; nothing ends in a traceback."""
    for name in ("report.md", "stated.jsonl"):
        (package / name).unlink()
        (package / name).write_bytes(b"\xff")
    assert main(["check", str(package)]) == 1
    out = capsys.readouterr().out
    assert "report.md: not the file that was packed" in out
    assert "not a stated value" in out


def test_what_cannot_be_packed_is_refused_and_leaves_nothing(scene, tmp_path):
    given, claims = scene
    (tmp_path / "there").mkdir()
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / MEASURED).symlink_to("/etc/hostname")
    cases = [
        ("there", given, "already there"),
        ("a", Given(prices=given.prices), "give --recipe"),
        ("b", dataclasses.replace(given, measurements=(tmp_path / "none",)), "no such folder"),
        ("c", dataclasses.replace(given, measurements=(linked,)), "is a symbolic link, to /etc/hostname"),
        ("d", dataclasses.replace(given, tuning=tmp_path / "none.toml"), "no such file"),
    ]
    for name, wrong, says in cases:
        with pytest.raises(ContractError, match=says):
            build(tmp_path / name, wrong, claims, silent)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked", "there"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere"], "not a package"), (["check", "nowhere", "--only", "logits"], "--only cannot be given"),
        (["package", "p"], "give --recipe"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_2(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_values_differ_by_more_than_rounding():
    assert not differs(1.0, 1.0 + 1e-9) and differs(1.0, 1.00001)
    assert differs(None, 0) and differs("1", 1) and differs(True, 1.5) and not differs(3, 3.0)


def test_every_leaf_is_stated():
    """By name where an item has one, by place where not; two of one name are told apart; a number that is none is its word."""

    @dataclasses.dataclass
    class Item:
        name: str
        value: float

    facts = {"items": (Item("a", 1.0), Item("a", float("nan"))), "places": (3, None)}
    assert stated(facts) == {
        "items > a > name": "a", "items > a > value": 1.0, "items > a (2) > name": "a", "items > a (2) > value": "nan",
        "places > 1": 3, "places > 2": None,
    }  # fmt: skip


@pytest.mark.parametrize("text", ['{"name": "a"}', "nothing", '{"name":"a","value":1}\n{"name":"a","value":2}'])
def test_what_states_nothing_is_refused(text, tmp_path):
    (tmp_path / STATED).write_text(text)
    with pytest.raises(ContractError, match=STATED):
        read_stated(tmp_path / STATED)
