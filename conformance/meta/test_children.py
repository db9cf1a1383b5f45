"""Child processes: how many run at a time, in which order, and what the first that fails does to the others."""

import sys

import psutil
import pytest

from conformance.children import JAX_CACHE, Child, run_all
from conformance.contract.errors import ContractError

# Writes when it began and when it ended into a file of its own.
TELLS = """
import sys, time
began = time.monotonic()
time.sleep(float(sys.argv[2]))
open(sys.argv[1], "w").write(f"{began} {time.monotonic()}")
"""
# Ends once a file is there that another child writes; code 1 after a minute without it.
WAITS = """
import os, sys, time
for _ in range(600):
    if os.path.exists(sys.argv[1]):
        sys.exit()
    time.sleep(0.1)
sys.exit(1)
"""


def child(label, program, *arguments):
    return Child(label, label, [sys.executable, "-c", program, *map(str, arguments)])


def tells(folder, *seconds):
    return [child(str(n), TELLS, folder / str(n), s) for n, s in enumerate(seconds)]


def spans(folder):
    """(began, ended) of each, in the order in which they were given."""
    return [tuple(map(float, path.read_text().split())) for path in sorted(folder.iterdir())]


def most_at_once(found):
    return max(sum(began <= at < ended for began, ended in found) for at, _ in found)


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_so_many_run_at_a_time(tmp_path, at_once):
    run_all(tells(tmp_path, 0.4, 0.4, 0.4, 0.4), at_once)
    assert len(spans(tmp_path)) == 4
    assert most_at_once(spans(tmp_path)) <= at_once


def test_one_at_a_time_they_keep_their_order(tmp_path):
    run_all(tells(tmp_path, 0.1, 0, 0), 1)
    assert spans(tmp_path) == sorted(spans(tmp_path))


def test_a_free_place_is_taken_while_another_runs(tmp_path):
    """The first ends only once the last has written its file, so the two others must have followed each other beside it."""
    run_all([child("waits", WAITS, tmp_path / "1"), *tells(tmp_path, 0, 0)], 2)
    assert len(spans(tmp_path)) == 2


def test_without_a_number_all_run_together(tmp_path):
    run_all([*(child("waits", WAITS, tmp_path / "0") for _ in range(3)), *tells(tmp_path, 0)])
    assert len(spans(tmp_path)) == 1


def test_the_first_failure_stops_those_that_run_and_those_that_wait(tmp_path):
    runs, waits = tells(tmp_path, 60, 0)
    with pytest.raises(ContractError, match="fails: `fails` ended with exit code 3"):
        run_all([runs, child("fails", "raise SystemExit(3)"), waits], 2)
    assert not psutil.pid_exists(runs.pid)
    assert list(tmp_path.iterdir()) == []


ASKS = f"import os, sys; sys.exit(os.environ.get('{JAX_CACHE}') != sys.argv[1])"


def test_the_users_environment_goes_before_ours(monkeypatch):
    monkeypatch.delenv(JAX_CACHE, raising=False)
    ours = {JAX_CACHE: "ours"}
    run_all([Child("asks", "asks", [sys.executable, "-c", ASKS, "ours"], environment=ours)])
    monkeypatch.setenv(JAX_CACHE, "the user's")
    run_all([Child("asks", "asks", [sys.executable, "-c", ASKS, "the user's"], environment=ours)])
    with pytest.raises(ContractError):  # control
        run_all([Child("asks", "asks", [sys.executable, "-c", ASKS, "ours"], environment=ours)])
