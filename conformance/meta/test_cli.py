"""The front door: what `parity` says and which exit code it gives, without running a stack."""

import pytest

from conformance.cli import main
from conformance.contract.schema import RUNGS
from conformance.findings import write_findings
from conformance.meta.synthetic import failing_finding, write_bundle
from conformance.meta.test_recipe import RECIPES


def test_help_teaches(capsys):
    """The ladder, an example and the exit codes are on one screen."""
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    text = capsys.readouterr().out
    assert error.value.code == 0
    assert all(rung in text for rung in RUNGS)
    assert "exit codes" in text
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("arguments", [["nonsense"], ["explain", "nonsense"], ["record", "gpu"], []])
def test_bad_usage_is_2(arguments, capsys):
    """Usage errors are exit code 2 and say what is allowed."""
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_bad_input_is_one_line(tmp_path, capsys):
    """A bundle that is none: one sentence on stderr, exit code 2."""
    assert main(["validate", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"parity: bundle {tmp_path}: no manifest.json")


def test_validate_lists_what_is_there(tmp_path, recipe, plan, capsys):
    """A whole bundle is read to the end and its rungs are listed."""
    write_bundle(tmp_path / "bundle", "port", recipe, plan)
    assert main(["validate", str(tmp_path / "bundle")]) == 0
    assert "trajectory" in capsys.readouterr().out


def test_diff_shows_what_follows(capsys):
    """Two recipes side by side: only what differs, and what follows from it."""
    assert main(["diff", str(RECIPES / "paper-gpu.toml"), str(RECIPES / "paper-tpu.toml")]) == 0
    text = capsys.readouterr().out
    for word in ("max_tokens", "4096", "3072", "loss_scope", "effective"):
        assert word in text
    assert "beta1" not in text


def test_explain_shows_failures_first(tmp_path, capsys):
    """With a findings file, the failing finding comes before the general causes."""
    write_findings(tmp_path / "findings.jsonl", [failing_finding()])
    assert main(["explain", "adapters", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.index("0.14423") < text.index("what usually goes wrong")


def test_check_refuses_before_it_starts(tmp_path, capsys):
    """A recipe that is not there and a bundle that is none are exit code 2, and nothing is written."""
    out = tmp_path / "out"
    assert main(["check", "--recipe", str(tmp_path / "no.toml"), "--out", str(out)]) == 2
    assert main(["check", "--port-bundle", str(tmp_path), "--out", str(out)]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not out.exists()
