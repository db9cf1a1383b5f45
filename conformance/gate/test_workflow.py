"""The reusable workflow: what it runs is what the command line takes, its inputs are no text of a script, its actions are pinned."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from conformance.cli import parser
from conformance.commands import ROOT, gate

FILE = ROOT / ".github" / "workflows" / "parity-gate.yml"
STUB = '#!/usr/bin/env bash\nprintf "%s\\n" "$@" > asked\nexit 1\n'


@pytest.fixture(scope="module")
def workflow() -> dict:
    return yaml.safe_load(FILE.read_text())


@pytest.fixture
def script(workflow) -> str:
    (step,) = [step for step in workflow["jobs"]["gate"]["steps"] if step.get("name") == "gate"]
    return step["run"]


def run(script: str, folder: Path, recipes: str = "a.toml\nb c.toml\n", plan: str = "") -> subprocess.CompletedProcess:
    """With a `parity` that writes down what it is asked, and withholds."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "parity").write_text(STUB)
    (folder / "bin" / "parity").chmod(0o755)
    inputs = {"CLAIMS": "my claims.toml", "RECIPES": recipes, "PLAN": plan, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", script], cwd=folder, env=inputs, capture_output=True, text=True)


@pytest.fixture
def artifacts(tmp_path) -> Path:
    for name in ("gate-bundles/1-tiny", "gate-bundles/2-claimed", "gate-measurements/time-gpu", "gate-measurements/time-tpu"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "gate-measurements" / "tuning.toml").touch()
    return tmp_path


def test_it_asks_what_the_command_takes(script, artifacts):
    """Pairs in their order, each measurement, a name with a space; and the gate's exit code is the job's."""
    done = run(script, artifacts, plan="plan.toml")
    assert done.returncode == 1, done.stderr
    options = parser().parse_args((artifacts / "asked").read_text().splitlines())
    assert options.run is gate
    assert [path.name for path in options.recipe] == ["a.toml", "b c.toml"]
    assert [str(path) for path in options.port_bundle] == ["gate-bundles/1-tiny/port", "gate-bundles/2-claimed/port"]
    assert [path.name for path in options.measurements] == ["time-gpu", "time-tpu"]
    assert (str(options.claims), str(options.plan), str(options.out)) == ("my claims.toml", "plan.toml", "gate-result")
    assert options.json


def test_as_many_bundles_as_recipes(script, artifacts):
    """Control: two of two are taken."""
    done = run(script, artifacts, recipes="a.toml\n")
    assert done.returncode == 2
    assert "1 recipes, but 2 folders" in done.stderr
    assert not (artifacts / "asked").exists()


def test_inputs_are_declared_and_no_text_of_a_script(workflow):
    """What a caller gives could end a quotation; as an environment variable it cannot."""
    steps = workflow["jobs"]["gate"]["steps"]
    assert not [step for step in steps if "${{" in step.get("run", "")]
    used = set(re.findall(r"inputs\.(\w+)", FILE.read_text()))
    assert used == set(workflow[True]["workflow_call"]["inputs"])  # YAML 1.1 reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}


def test_actions_are_pinned_by_their_commit(workflow):
    actions = [step["uses"] for step in workflow["jobs"]["gate"]["steps"] if "uses" in step]
    assert len(actions) == 5
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in actions)
