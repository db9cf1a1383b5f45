"""The recorder's process: an answer a question; one that dies or gives no answer is lost, and another stands ready."""

from pathlib import Path

import pytest

from conformance.mutants import recorder
from conformance.mutants.recorder import Lost, Recorder

# Answers with its number of questions so far; dies or sleeps when it is told to.
SCRIPT = """
import json, sys, time
print(json.dumps({"parts": ["tokens"]}), flush=True)
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    if asked.get("record") == "die":
        sys.exit(3)
    if asked.get("record") == "sleep":
        time.sleep(60)
    print(json.dumps({"number": number}), flush=True)
"""


@pytest.fixture
def running(monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "COMMAND", ["-c", SCRIPT])
    with Recorder(Path("recipe.toml"), tmp_path, 5, tmp_path / "log") as found:
        yield found


def test_questions_and_answers(running):
    assert running.parts == ("tokens",)
    assert [running.ask(remove=True) for _ in range(2)] == [{"number": 0}, {"number": 1}]


def test_one_that_dies_is_started_anew(running):
    running.ask(remove=True)
    with pytest.raises(Lost, match="exit code 3"):
        running.ask(record="die")
    assert running.ask(remove=True) == {"number": 0}


def test_one_that_hangs_is_ended_and_started_anew(running):
    running._limit = 1
    with pytest.raises(Lost, match="no answer in 1 s"):
        running.ask(record="sleep")
    running._limit = 5
    assert running.ask(remove=True) == {"number": 0}


def test_one_that_was_stopped_stays_so(running):
    running.stop()
    with pytest.raises(Lost):
        running.ask(remove=True)
    assert running._process.poll() is not None
