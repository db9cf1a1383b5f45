"""Stated numbers: intervals, expressions, and what the paper's own come to."""

import json
from pathlib import Path

import pytest

from conformance.claims.claims_file import read_claims
from conformance.claims.consistency import Verdict, check
from conformance.claims.intervals import Interval, evaluate, exact, stated
from conformance.cli import main
from conformance.commands import PAPER
from conformance.contract.errors import ContractError

NUMBER = '[[number]]\nname = "{}"\nvalue = "{}"\nunit = "ms"\nsource = "here"\nexact = {}\n'
SUM = '[[sum]]\nabout = "s"\nleft = "{}"\nmust = "{}"\nright = "{}"\nsource = "here"\nphysical = {}\n'


def claims(folder: Path, text: str):
    (folder / "claims.toml").write_text(text)
    return read_claims(folder / "claims.toml")


def numbers(**values: str) -> str:
    return "".join(NUMBER.format(name, value, "false") for name, value in values.items())


def verdict(folder: Path, left: str, must: str, right: str, *, physical: str = "false", **values: str) -> Verdict:
    (outcome,) = check(claims(folder, numbers(**values) + SUM.format(left, must, right, physical)))
    return outcome.verdict


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("1.61", 1.605, 1.615), ("1443", 1442.5, 1443.5), ("9,955", 9954.5, 9955.5), ("0.6410", 0.64095, 0.64105),
        ("31e9", 30.5e9, 31.5e9),
    ],
)  # fmt: skip
def test_a_printed_number_may_have_been_half_a_unit_off(text, low, high):
    found = stated(text, "here")
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_expressions_are_intervals():
    known = {"a": Interval(1, 2), "b": Interval(-3, 4)}
    assert evaluate("a * b - 1", known, "here") == Interval(-7, 7)
    assert evaluate("-(a + 2) / 2", known, "here") == Interval(-2, -1.5)
    assert evaluate("8 / a", known, "here") == Interval(4, 8)
    assert evaluate("2 * 3", {}, "here") == exact(6)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("a / b", "may be 0"), ("c", "no number is called 'c'"), ("a ** 2", "only names"), ("f(a)", "only names"),
        ("a +", "not an expression"), ("True", "only names"),
    ],
)  # fmt: skip
def test_what_is_no_sum_is_refused(expression, says):
    with pytest.raises(ContractError, match=says):
        evaluate(expression, {"a": Interval(1, 2), "b": Interval(-3, 4)}, "here")


def test_a_ratio_agrees_up_to_its_rounding(tmp_path):
    """61 and 1,443 give 23.46 to 23.86: 23.6 is true of them, 23.3 is not."""
    values = {"a": "1443", "b": "61"}
    assert verdict(tmp_path, "a / b", "equal", "c", **values, c="23.6") is Verdict.CONSISTENT
    assert verdict(tmp_path, "a / b", "equal", "c", **values, c="23.3") is Verdict.CONTRADICTORY


@pytest.mark.parametrize(("value", "expected"), [("5", Verdict.CONSISTENT), ("4", Verdict.IMPOSSIBLE)])
def test_what_is_under_a_physical_bound_is_impossible(tmp_path, value, expected):
    assert verdict(tmp_path, "a", "be at least", "5", a=value, physical="true") is expected


@pytest.mark.parametrize(("value", "expected"), [("6", Verdict.CONTRADICTORY), ("5", Verdict.CONSISTENT)])
def test_at_most_is_seen(tmp_path, value, expected):
    assert verdict(tmp_path, "a", "be at most", "5", a=value) is expected


def test_the_papers_numbers():
    """What can be said without hardware: worked by hand in PAPER.md's last section."""
    found = {outcome.sum.about: outcome for outcome in check(read_claims(PAPER))}
    verdicts = {about: outcome.verdict for about, outcome in found.items()}
    consistent = ("training time ratio", "TTFT ratio at 4,096", "the cost ratio is the time ratio times the price ratio")
    assert {verdicts[about] for about in consistent} == {Verdict.CONSISTENT}
    assert verdicts["both sides trained on the same number of tokens"] is Verdict.CONTRADICTORY
    assert verdicts["total cost ratio with one hour of serving"] is Verdict.CONSISTENT
    assert verdicts["total cost ratio with a day of serving, text"] is Verdict.CONTRADICTORY
    assert verdicts["the TPU holds the rate at which its TTFT is stated (4,096)"] is Verdict.CONTRADICTORY
    impossible = found["the TPU's TTFT at 16k is not under its prefill at peak"]
    assert impossible.verdict is Verdict.IMPOSSIBLE
    assert impossible.right.middle == pytest.approx(2 * 31e9 * 15360 / (8 * 918e12) * 1000)
    assert "62 ms" in impossible.arithmetic
    assert "129.7" in impossible.arithmetic


def test_the_papers_claims_name_what_they_need():
    found = read_claims(PAPER)
    assert len(found.claims) == 9
    assert {claim.stated for claim in found.claims} >= {"1.61", "2.12", "23.6", "7.1", "1.82"}
    assert all({"L1", "L2"} <= set(claim.levels) for claim in found.claims)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[numbers]]\n", "unknown table 'numbers'"), ("[[number]]\nname = 1\n", r"number\[0\].name = 1 is int"),
        (numbers(a="fast"), "'fast' is not a number"), (numbers(a="1") * 2, "two of .* 'a'"), ("[[sum", "not TOML"),
        ("claim = 5\n", "claim = 5; allowed: tables"),
        (numbers(a="1") + SUM.format("a", "exceed", "1", "false"), "'exceed' is not one of 'equal'"),
    ],
)  # fmt: skip
def test_bad_files_are_named(tmp_path, capsys, text, says):
    with pytest.raises(ContractError, match=says):
        list(check(claims(tmp_path, text)))
    assert main(["claims", "check", str(tmp_path / "claims.toml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_is_no_text_is_named(tmp_path, capsys):
    (tmp_path / "claims.toml").write_bytes(b"\xff\xfe")
    assert main(["claims", "check", str(tmp_path / "claims.toml")]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_the_command_shows_the_arithmetic(tmp_path, capsys):
    text = numbers(a="3", b="2", c="1.5", d="1.7")
    claims(tmp_path, text + SUM.format("a / b", "equal", "c", "false"))
    assert main(["claims", "check", str(tmp_path / "claims.toml")]) == 0
    assert "1 CONSISTENT, 0 CONTRADICTORY, 0 IMPOSSIBLE" in capsys.readouterr().out
    claims(tmp_path, text + SUM.format("a - b", "equal", "d * 9", "false"))
    assert main(["claims", "check", "--json", str(tmp_path / "claims.toml")]) == 1
    line = json.loads(capsys.readouterr().out)
    assert line["verdict"] == "CONTRADICTORY"
    assert "a [3 ms] - b [2 ms] = 0 to 2" in line["arithmetic"]
