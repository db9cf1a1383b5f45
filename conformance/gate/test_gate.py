"""The gate's other claims and its command: totals, highest rates, whose ratio it is; exit codes, JSON, what needs no extra packages."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.bench.synthetic_sweep import CELLS
from conformance.claims.claims_file import Claim, read_claims
from conformance.cli import main
from conformance.commands import PAPER, ROOT
from conformance.contract.errors import ContractError
from conformance.gate.costs import Prices, open_prices
from conformance.gate.evidence import Evidence, weigh
from conformance.gate.gate import judge, margin_of
from conformance.gate.results import ClaimVerdict
from conformance.gate.show import gate_lines
from conformance.gate.synthetic import CLAIM, LEDGER, PORT_FIRST, PRICES, TIME, TTFT, Stage
from conformance.gate.training import Trainings
from conformance.gate.tuning import read_ledger
from conformance.gate.values import orientation_problem

TOTAL = {"metric": "total_cost", "stated": "1.0", "kind": "at_least", "serving_hours": 24.0}
RATES = CELLS.replace("levels = [10, 20]", "levels = [10, 20, 40]")
RATE = {"metric": "ttft_ms", "quantity": "highest_rate", "stated": "0.2", "kind": "at_least", "cell": "32", **PORT_FIRST}
TOML = """
[[claim]]
name = "training time"
metric = "training_time"
numerator = "reference"
denominator = "port"
stated = "1.9"
kind = "at_least"
source = "here"
levels = ["L0"]
"""
TUNING = """
[training.reference]
budget_usd = 40
chosen = "b"
tried = [{ settings = "a", step_ms = 300 }, { settings = "b", step_ms = 200 }]
[training.port]
budget_usd = 40
chosen = "b"
tried = [{ settings = "a", step_ms = 150 }, { settings = "b", step_ms = 100 }]
"""


def test_a_total_is_training_and_hours_of_the_server(stage):
    """Both machines at $10 an hour: a day of serving outweighs training by far, and the ratio is near 1."""
    stage.claim = TOTAL | {"stated": "0.99"}
    found = stage.judge()
    assert found.reasons == ()
    assert found.measured.value == pytest.approx(1, abs=1e-3)
    assert min(found.numerator) > 24 * 10
    assert "24 hours of serving on each side, whatever is served in them" in found.notes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda stage: stage.claim.update(serving_hours=0.0), "serving_hours = 0"),
        (lambda stage: stage.training.update({stack: {"steps": 20} for stack in stage.training}), "only a part of the recipe's steps"),
        (lambda stage: stage.serving["port"].update(machine="v9"), "no price for machine 'v9'"),
    ],
)
def test_a_total_of_parts_does_not_get_past(stage, change, words):
    stage.claim = dict(TOTAL)
    change(stage)
    assert any(words in reason for reason in stage.judge().reasons)


def rates(stage: Stage, **busy_ms: float) -> None:
    """Servers that take one request at a time, so long each."""
    for stack in stage.serving:
        stage.serving[stack] = {"cells": RATES, "busy_ms": busy_ms.get(stack, 0.0)}


def test_the_highest_rate_lies_between_what_was_held_and_what_was_not(stage):
    """Reference: 30 ms a request, so 20/s are held and 40/s are not; port: 60 ms, 10/s and not 20/s. 10 / 40 at the least."""
    stage.claim = RATE | {"slo_ttft_ms": 2000.0}
    rates(stage, reference=30.0, port=60.0)
    found = stage.judge()
    assert found.reasons == ()
    assert (found.numerator, found.denominator) == ((10.0,) * 3, (20.0,) * 3)
    assert found.measured.bound == 10 / 40
    assert found.measured.high == 20 / 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda stage: stage.claim.update(slo_ttft_ms=0.0), "a highest rate needs a limit"),
        (lambda stage: stage.claim.update(slo_ttft_ms=5.0), "not even 10 requests/s is held"),
        (lambda stage: rates(stage, port=60.0), "the reference holds every rate that was tried: its highest was not reached"),
        (lambda stage: stage.serving["port"].update(ttft_ms=(25.0, 25.5)), "port: server starts: 2; 3 are needed"),
        (lambda stage: stage.serving["port"].update(seed=2), "other requests were sent to the two sides"),
    ],
)
def test_a_highest_rate_does_not_get_past(stage, change, words):
    """Control: the test above."""
    stage.claim = RATE | {"slo_ttft_ms": 2000.0}
    rates(stage, reference=30.0, port=60.0)
    change(stage)
    found = stage.judge()
    assert any(words in reason for reason in found.reasons), found.reasons
    assert found.measured is None


def test_rates_of_requests_that_differ_are_not_looked_for(stage):
    """What was held is no figure of the claim then. Control: of the same requests it is."""
    stage.claim = RATE | {"slo_ttft_ms": 2000.0}
    rates(stage, reference=30.0, port=60.0)
    assert stage.judge().numerator == (10.0,) * 3
    stage.serving["port"].update(seed=2)
    stage.folder = stage.folder / "again"
    stage.folder.mkdir()
    assert stage.judge().numerator == ()


@pytest.mark.parametrize(
    ("metric", "numerator", "kind", "stated", "ahead"),
    [
        ("training_time", "reference", "at_least", "1.61", "port"), ("training_time", "port", "at_least", "1.61", "reference"),
        ("training_time", "port", "at_most", "0.8", "port"), ("training_time", "reference", "at_most", "0.8", "reference"),
        ("output_tokens_per_s", "port", "at_least", "1.66", "port"),
        ("output_tokens_per_s", "reference", "at_least", "1.66", "reference"),
        ("training_time", "port", "at_most", "1.05", ""), ("pass_at_1", "port", "at_least", "0.919", ""),
        ("training_time", "port", "equal", "1", ""),
    ],
)  # fmt: skip
def test_a_ratio_has_its_winner_where_the_metric_says(metric, numerator, kind, stated, ahead):
    """Of what is better when it is less the winner divides; a ratio that favours nobody has no such rule."""
    other = "port" if numerator == "reference" else "reference"
    claim = Claim(**CLAIM | {"metric": metric, "numerator": numerator, "denominator": other, "kind": kind, "stated": stated})
    for winner in ("reference", "port"):
        assert (orientation_problem(replace(claim, winner=winner)) == "") is (ahead in ("", winner))


def test_every_claim_of_the_paper_is_withheld_without_hardware(proof):
    """With every reason. Control: the honest claim below."""
    nothing = Evidence((), Trainings({}, ()), None, Prices(PRICES), None, None, ())
    result = judge(read_claims(PAPER), weigh([proof], [], [], nothing))
    assert [one.verdict for one in result.claims] == [ClaimVerdict.WITHHELD] * 9
    text = "\n".join(gate_lines(result))
    assert "0 of 9 claims REPORTABLE" in text
    for words in ("level too low: L2 is needed", "no training measurement of the port", "no sweep was given", "pass@1: the rung"):
        assert words in text


@pytest.fixture
def measured(stage, tmp_path) -> list[Path]:
    """An honest measurement, its ledger and its claims on disk."""
    stage.claim = TIME
    stage.judge()
    (tmp_path / "tuning.toml").write_text(TUNING)
    (tmp_path / "claims.toml").write_text(TOML)
    return [tmp_path / "training-reference", tmp_path / "training-port"]


def gate(files, *more) -> int:
    pair = ["--recipe", files.recipe, "--reference-bundle", files.reference, "--port-bundle", files.port]
    return main(["gate", *map(str, (*pair, *more))])


def test_an_honest_claim_opens_the_gate_from_the_command_line(files, measured, tmp_path, capsys):
    """The ledger is found beside the measurements; a file keeps what JSON says."""
    arguments = ["--claims", tmp_path / "claims.toml", "--measurements", *measured]
    assert gate(files, *arguments, "--json", "--out", tmp_path / "out") == 0
    values = json.loads(capsys.readouterr().out)
    assert values == json.loads((tmp_path / "out" / "gate.json").read_text())
    assert values["open"] is True
    assert values["claims"][0]["measured"]["bound"] == pytest.approx(1.981, abs=1e-3)
    assert values["levels"][0]["name"] == "L0"


def test_a_reportable_claim_says_what_was_measured(stage):
    """Ratio, interval, bound, and each launch."""
    stage.claim = TIME
    text = "\n".join(gate_lines(stage.judge_all()))
    assert "REPORTABLE  claim 1: training_time, reference / port at least 1.9" in text
    assert "measured 2 [1.977, 2.023], lower bound 1.981 (confidence 95.00%, n = 5 and 5)" in text
    assert "port: 4.8, 4.848, 4.752, 4.824, 4.776 s" in text


def test_no_claims_open_nothing(stage):
    stage.claim, stage.set_of = TIME, 0
    result = stage.judge_all()
    assert not result.is_open
    assert "nothing may be reported" in "\n".join(gate_lines(result))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--claims", "none.toml"], "none.toml: No such file"),
        (["--claims", PAPER, "--measurements", "nowhere"], "measurements nowhere: no manifest.json"),
        (["--claims", PAPER, "--prices", "none.toml"], "prices none.toml: no such file"),
        (["--claims", PAPER, "--plan", "none.toml"], "plan none.toml"),
        (["--claims", PAPER, "--tuning", "none.toml"], "tuning none.toml"),
        (["--claims", PAPER, "--recipe", "r.toml"], "--recipe 1 times, --reference-bundle 0 times"),
    ],
)
def test_bad_input_is_one_line_and_2(more, words, capsys):
    assert main(["gate", *map(str, more)]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize(("old", "new", "words"), [('"1.9"', '"fast"', "'fast' is not a number"), ('"1.9"', '"-1"', "a ratio above 0")])
def test_a_claim_without_a_number_is_bad_input(tmp_path, capsys, old, new, words):
    (tmp_path / "claims.toml").write_text(TOML.replace(old, new))
    assert main(["gate", "--claims", str(tmp_path / "claims.toml")]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("2%", 0.02), ("0.05", 0.05), ("", 0.0)])
def test_margins_are_read(text, value):
    assert margin_of(text, "here") == pytest.approx(value)
    for wrong in ("200%", "-1%", "nan", "x"):
        with pytest.raises(ContractError, match="allowed: above 0 and below 1"):
            margin_of(wrong, "here")


def test_ledgers_and_prices_are_read(tmp_path):
    """A price without a date leaves no prices, and says so; an unknown key of a ledger is refused."""
    (tmp_path / "tuning.toml").write_text(TUNING)
    assert read_ledger(tmp_path / "tuning.toml").training.port.best.step_ms == LEDGER.training.port.best.step_ms
    (tmp_path / "tuning.toml").write_text(TUNING + "[evaluation]\n")
    with pytest.raises(ContractError, match="unknown key evaluation"):
        read_ledger(tmp_path / "tuning.toml")
    (tmp_path / "prices.toml").write_text('[v5p-8]\nusd_per_hour = 1.0\nsource = "here"\n')
    (reason,) = open_prices(tmp_path / "prices.toml").reasons("v5p-8")
    assert reason == f"prices: {tmp_path / 'prices.toml'}: v5p-8.date is missing"
    assert list(Prices(PRICES).reasons("v5p-8")) == []


def test_a_withheld_claim_says_why_line_by_line(stage):
    stage.claim, stage.ledger = TTFT | {"stated": "3"}, None
    result = stage.judge_all()
    text = "\n".join(gate_lines(result))
    assert result.claims[0].verdict is ClaimVerdict.WITHHELD
    assert "WITHHELD    claim 1: ttft_ms, 32 at 10/s, reference / port at least 3" in text
    assert "            - untuned: no tuning ledger" in text


def test_a_gate_on_training_needs_neither_client_nor_stack():
    """aiohttp, prometheus_client and matplotlib are for others; torch and jax for nobody here."""
    code = (
        "import sys, conformance.gate.command, conformance.gate.gate; "
        "print(sorted({'torch', 'jax', 'transformers', 'aiohttp', 'prometheus_client', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
