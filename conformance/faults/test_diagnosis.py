"""Diagnosis: what counts as held out, how ties count, and that the signatures are those of the catalogue."""

import pytest

from conformance.causes import Cause, likely_causes
from conformance.contract.errors import ContractError
from conformance.contract.faults import RECORDERS, of_stack, read_causes, read_faults
from conformance.contract.recipe import load_recipe
from conformance.faults import diagnosis
from conformance.faults.__main__ import main
from conformance.faults.diagnosis import DISTINCT, HELD_OUT, Diagnosis, diagnose_all, lines
from conformance.faults.judging import Outcome
from conformance.faults.small import write_small
from conformance.meta.synthetic import failing_finding
from conformance.signatures import FILE, read_signatures, recipe_of_signatures

FAULTS = {fault.id: fault for fault in of_stack(read_faults(), *RECORDERS)}
MOST_BYTES = 200_000


def caught(name: str, **finding) -> Outcome:
    return Outcome(FAULTS[name], "adapters", "test_a_starts_with_the_recipes_spread", findings=(failing_finding(**finding),))


def test_the_signatures_are_those_of_the_catalogue():
    """Every fault has one, nothing else has, and each holds the check that must fail first."""
    signatures = read_signatures()
    assert list(signatures) == list(FAULTS)
    assert {name for name, fault in FAULTS.items() if fault.check not in signatures[name]} == set()
    assert FILE.stat().st_size < MOST_BYTES


def test_a_fault_with_kin_is_diagnosed_without_its_own_signature():
    outcomes = [caught(name) for name in ("init-2-percent-wider", "init-0.1-percent-wider", "stock-init")]
    assert [one.kind for one in diagnose_all(outcomes, recipe_of_signatures())] == [HELD_OUT, HELD_OUT, DISTINCT]


def test_with_another_recipe_everything_is_held_out():
    assert {one.kind for one in diagnose_all([caught("stock-init")], "another")} == {HELD_OUT}


def test_another_seed_is_another_recipe(tmp_path):
    """Without one it is the recipe of the signatures."""
    digests = [load_recipe(write_small(tmp_path, seed)).digest for seed in (None, 1, 2)]
    assert len(set(digests)) == 3
    assert digests[0] == recipe_of_signatures()


def test_what_is_left_out_is_not_used():
    assert "stock-init" in {cause.id for cause in likely_causes(failing_finding())}
    assert "stock-init" not in {cause.id for cause in likely_causes(failing_finding(), without=("stock-init",))}


def test_a_tie_counts_against_the_true_cause(monkeypatch):
    causes = [Cause("", "", "", id=name, similarity=score) for name, score in (("a", 0.9), ("stock-init", 0.8), ("b", 0.8), ("c", 0.7))]
    monkeypatch.setattr(diagnosis, "likely_causes", lambda *_: causes)
    found = diagnose_all([caught("stock-init")], recipe_of_signatures())[0]
    assert (found.rank, found.is_first, found.is_among) == (3, False, True)
    monkeypatch.setattr(diagnosis, "likely_causes", lambda *_: causes[:1])
    assert diagnose_all([caught("stock-init")], recipe_of_signatures())[0].rank is None


def test_a_fault_that_was_not_caught_is_not_diagnosed():
    assert diagnose_all([Outcome(FAULTS["stock-init"])], recipe_of_signatures()) == []


def test_the_shares_are_counted_by_kind():
    found = [Diagnosis(FAULTS["stock-init"], HELD_OUT, place, "init-off") for place in (1, 1, 3, None)]
    found.append(Diagnosis(FAULTS["one-seed"], DISTINCT, 1, "one-seed"))
    assert lines(found) == [
        "held out: true cause first for 2 of 4 (50%), among the first three 3 (75%)",
        "distinct: true cause first for 1 of 1 (100%), among the first three 1 (100%)",
        "  stock-init: its cause comes 3; first is init-off",
        "  stock-init: its cause comes nowhere; first is init-off",
    ]


def test_signatures_of_some_faults_only_are_refused(tmp_path, capsys):
    assert main(["--out", str(tmp_path), "--ids", "stock-init", "--write-signatures"]) == 2
    assert "leave out --ids" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["cause", "seam", "mend"])
def test_a_cause_is_said_once(field):
    """Two causes with the same words would be one: `cause` differs, a seam or a mend may be shared."""
    values = [getattr(cause, field) for cause in read_causes().values()]
    assert all(values)
    assert field != "cause" or len(set(values)) == len(values)


def test_a_fault_without_a_cause_is_refused(tmp_path):
    (tmp_path / "c.toml").write_text(
        '[[cause]]\nid = "a"\ncause = "b"\nseam = "c"\nmend = "d"\n\n[[fault]]\nid = "f"\nsource = "s"\ncause = "x"\nplant = "p"\n'
        'records = []\nrung = "tokens"\ncheck = "c"\n'
    )
    with pytest.raises(ContractError, match="fault 'f': cause = 'x'"):
        read_faults(tmp_path / "c.toml")
