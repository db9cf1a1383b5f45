"""The command line: exit codes, one-line errors, and children that end with their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance import commands
from conformance.certificate import NAME as CERTIFICATE
from conformance.cli import main
from conformance.commands import FINDINGS, ROOT
from conformance.contract.schema import RUNGS
from conformance.findings import write_findings
from conformance.meta.synthetic import failing_finding, open_finding, passing_findings, write_bundle
from conformance.saved import TINY
from conformance.summary import STOPPED

PAPER = [str(TINY.with_name(f"paper-{side}.toml")) for side in ("gpu", "tpu")]


@pytest.fixture
def no_children(monkeypatch):
    """Replaces child processes; `calls` keeps their commands, `code` is what they return, `findings` what pytest leaves."""

    class Children:
        def __init__(self):
            self.calls, self.code, self.findings = [], 0, None

        def __call__(self, command, cwd=None):
            self.calls.append(command)
            out = next((Path(part.removeprefix("--out=")) for part in command if part.startswith("--out=")), None)
            if out and self.findings is not None:
                out.mkdir(exist_ok=True)
                write_findings(out / FINDINGS, self.findings)
            return self.code

    children = Children()
    monkeypatch.setattr(commands, "run_child", children)
    return children


def test_help_teaches(capsys):
    """Ladder, examples and exit codes in one screen."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(rung in text for rung in RUNGS)
    assert all(part in text for part in ("parity check --only", "exit codes:", "3  nothing failed", "L0", "L1", "L2"))
    assert len(text.splitlines()) <= 50


@pytest.mark.parametrize("arguments", [[], ["unheard"], ["explain", "no_rung"], ["record", "third", "--recipe", "a", "--out", "b"]])
def test_wrong_usage_is_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nowhere"], "no manifest.json"),
        (["diff", "a.toml", "b.toml"], "no such file"),
        (["report", "--out", "nowhere"], "no findings.jsonl"),
        (["check", "--recipe", "none.toml"], "no such file"),
        (["check", "--port-bundle", "nowhere"], "not a bundle"),
    ],
)
def test_bad_input_is_one_line_and_2(arguments, message, capsys, no_children):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("parity: ") and message in error and error.count("\n") == 1
    assert no_children.calls == []


@pytest.mark.parametrize(
    ("code", "findings", "expected"),
    [
        (0, passing_findings(), 0),
        (1, [failing_finding()], 1),
        (0, [failing_finding()], 1),
        (0, [*passing_findings(), open_finding()], 3),
        (3, [*passing_findings(), open_finding()], 3),
        (0, None, 2),
        (2, passing_findings(), 2),
        (4, None, 2),
    ],
)
def test_exit_codes_of_a_check(code, findings, expected, no_children, tmp_path):
    """0 all required passed, 1 a check failed, 2 pytest could not run, 3 something is open."""
    no_children.code, no_children.findings = code, findings
    assert main(["check", "--out", str(tmp_path)]) == expected


def test_one_rung_alone_can_pass(no_children, tmp_path):
    """With --only, the other rungs are not asked for."""
    no_children.findings = passing_findings(("logits",))
    assert main(["check", "--only", "logits", "--out", str(tmp_path)]) == 0
    assert main(["check", "--out", str(tmp_path)]) == 3


def test_a_check_hands_its_options_on(no_children, tmp_path, monkeypatch):
    """Absolute paths, since pytest runs in the repository, and the marker."""
    monkeypatch.chdir(tmp_path)
    main(["check", "--out", "o", "--checkpoint", "c", "--only", "merge"])
    command = no_children.calls[0]
    assert command[1:6] == ["-m", "pytest", "conformance", "-m", "parity"]
    assert {f"--out={tmp_path / 'o'}", f"--checkpoint={tmp_path / 'c'}", "--only=merge"} <= set(command)


def test_a_check_leaves_nothing_of_an_older_one(no_children, tmp_path):
    """Findings and certificate of an earlier run don't survive one that could not run."""
    for name in (FINDINGS, CERTIFICATE):
        (tmp_path / name).write_text("{}")
    no_children.code = 4
    assert main(["check", "--out", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_stacks_are_run_in_their_own_process(no_children):
    main(["record", "port", "--recipe", "r.toml", "--out", "b", "--rungs", "tokens,logits"])
    main(["exchange", "reference", "--bundle", "b", "--peer", "p"])
    assert no_children.calls[0][1:] == ["-m", "tpu_impl", "record", "--recipe", "r.toml", "--out", "b", "--rungs", "tokens,logits"]
    assert no_children.calls[1][1:] == ["-m", "reference", "exchange", "--bundle", "b", "--peer", "p"]


def test_a_stack_that_breaks_is_not_a_failed_check(no_children):
    no_children.code = 1
    assert main(["record", "port", "--recipe", "r.toml", "--out", "b"]) == 2


def test_explain_tells_failures_first(tmp_path, capsys):
    """What failed in the last run comes before the general text; another rung's failure doesn't."""
    write_findings(tmp_path / FINDINGS, [failing_finding(), failing_finding("logits", where="layer 5")])
    assert main(["explain", "adapters", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.index("0.14423") < text.index("promise:") < text.rindex("he_uniform")
    assert "layer 5" not in text


def test_diff_shows_what_differs(capsys):
    """Only what differs by default; why the steps are not known; everything with --all."""
    assert main(["diff", *PAPER]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("he_uniform", "16 rows", "max_tokens", "4096", "3072", "loss_scope"))
    assert "adapter.rank" not in text and "beta1" not in text
    assert "not known here" in text
    assert main(["diff", *PAPER, "--all"]) == 0
    assert "adapter.rank" in capsys.readouterr().out


def test_diff_of_a_recipe_with_itself_is_empty(capsys):
    main(["diff", str(TINY), str(TINY)])
    assert capsys.readouterr().out == "The two recipes are the same.\n"


def test_validate_and_report_read_a_bundle(tmp_path, capsys, recipe, plan):
    """A whole bundle is listed and reported; a changed byte in it is an error."""
    bundle = write_bundle(tmp_path / "reference", "reference", recipe, plan)
    assert main(["validate", str(bundle.path)]) == 0
    assert "trajectory" in capsys.readouterr().out
    write_findings(tmp_path / FINDINGS, passing_findings())
    assert main(["report", "--out", str(tmp_path)]) == 0
    assert "no bundle of the port" in (tmp_path / "report.html").read_text()
    with (bundle.path / "trajectory.jsonl").open("a") as file:
        file.write("\n")
    assert main(["validate", str(bundle.path)]) == 2
    assert "sha256 differs" in capsys.readouterr().err


def test_claims_without_bundles_are_withheld_in_the_report(tmp_path):
    """Findings that were saved prove nothing to the gate; without claims nothing is said of them."""
    write_findings(tmp_path / FINDINGS, passing_findings())
    assert main(["report", "--out", str(tmp_path), "--one-page", "--claims", str(commands.PAPER)]) == 0
    page = (tmp_path / "one-page.html").read_text()
    assert "0 of 9 claims" in page and "no bundles were given" in page
    assert main(["report", "--out", str(tmp_path), "--one-page"]) == 0
    assert "No claims were given" in (tmp_path / "one-page.html").read_text()


def test_the_command_line_needs_no_stack():
    """Neither torch nor jax is imported by any command's module, nor what only a server's measurements need."""
    absent = {"torch", "jax", "transformers", "aiohttp", "prometheus_client"}
    modules = "conformance.cli, conformance.report.command, conformance.package.check, conformance.package.build"
    code = f"import sys, {modules}; print(sorted({absent} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_interrupt_ends_the_child(tmp_path):
    """Ctrl-C to the parent alone reaches the child, which gets the time to end its own."""
    child = f"import pathlib, os, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(60)"
    # A shell starts what runs in its background with SIGINT ignored, and Python leaves it so: the test must not inherit that.
    heard = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    parent = f"{heard}from conformance.commands import run_child; run_child([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    pid = _wait_for_pid(tmp_path / "pid")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _wait_for_pid(path: Path) -> int:
    for _ in range(400):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("the child did not start")


def test_a_reader_that_has_seen_enough_is_no_error():
    """As in `parity ... | head`: nothing on stderr. Here the reader has gone before the first line."""
    command = f"set -o pipefail; {sys.executable} -u -m conformance.cli sweep --import fixtures/bench_results/vllm-0.32.json | true"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert found.stderr == ""
    assert found.returncode == STOPPED
