"""What becomes of a mutant, on bundles that no stack recorded: seen, not seen, an error, no answer; and what is printed of it."""

import pytest

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.errors import ContractError
from conformance.faults.peers import PEERS
from conformance.meta.synthetic import write_bundle
from conformance.mutants import judging, run
from conformance.mutants.drawing import draw
from conformance.mutants.judging import CRASH, OURS, Outcome, judge_mutant
from conformance.mutants.recorder import Lost
from conformance.mutants.table import print_mutants, shares
from conformance.pair import Pair
from conformance.tolerances import read_tolerances

MUTANT = draw(1, 1, ("tpu_impl.session",))[0]
PARTS = ("adapters facts", "trajectory f32", "merge loud", "merge in float32")


class Recorder:
    """Answers as the port's would; records adapter facts with a number of parameters of its own."""

    parts = PARTS

    def __init__(self, recipe, plan, params: int, **answers):
        self._recipe, self._plan, self._params, self._answers, self.asked = recipe, plan, params, answers, []

    def ask(self, **asked):
        self.asked.append(asked)
        for part in asked.get("record", ()):
            answer = self._answers.get(part) or self._answers.get(part.split()[0], {})
            if isinstance(answer, Exception):
                raise answer
            if answer:
                return {"part": part, **answer}
        if "record" in asked:
            self._write(asked["record"], asked["to"])
        return {}

    def _write(self, parts, to) -> None:
        with BundleWriter(to, stack="port", recipe=self._recipe, plan=self._plan) as writer:
            if "adapters facts" in parts:
                facts = dict(trainable_params=self._params, total_params=2_097_152, optimizer_leaves=[], optimizer_leaves_remat=[])
                writer.line("adapters", "facts", **facts)
            writer.manifest(device="cpu", versions={}, matmul_precision="highest", code_sha256="0" * 64)


class Nothing:
    """A recorder that nobody asks."""

    __enter__ = __exit__ = stop = lambda self, *_: None


@pytest.fixture
def pair(tmp_path, recipe, plan) -> Pair:
    return Pair(recipe, *(write_bundle(tmp_path / stack, stack, recipe, plan) for stack in ("reference", "port")))


@pytest.fixture
def given(recipe, plan):
    return {"plan": plan, "recipe": recipe, "limits": read_tolerances()}


@pytest.fixture(autouse=True)
def judged_here(monkeypatch):
    """The one check that the synthetic bundles hold, and peers that see a number of parameters over a million."""

    def test_trainable_parameters(judge, reference, port):
        """As many parameters as the reference."""
        judge.same("", *(bundle.lines("adapters", "facts")[0]["trainable_params"] for bundle in (port, reference)))

    def peers(reference, port, plan):
        return dict.fromkeys(PEERS, port.lines("adapters", "facts")[0]["trainable_params"] > 1_000_000)

    monkeypatch.setattr(judging, "checks", lambda: {"one": ("adapters", test_trainable_parameters)})
    monkeypatch.setattr(judging, "caught_by", peers)


def judged(pair, given, tmp_path, params, **answers) -> Outcome:
    return judge_mutant(MUTANT, Recorder(pair.recipe, given["plan"], params, **answers), pair, given, tmp_path / "plant")


def test_a_change_that_nothing_shows_is_not_seen(pair, given, tmp_path):
    outcome = judged(pair, given, tmp_path, 33_920)
    assert (outcome.rung, outcome.check) == (None, None)
    assert not any(outcome.caught.values())


@pytest.mark.parametrize(("params", "peers"), [(33_921, False), (2_000_000, True)])
def test_a_change_is_seen_by_the_ladder_and_by_the_peers_apart(pair, given, tmp_path, params, peers):
    outcome = judged(pair, given, tmp_path, params)
    assert (outcome.rung, outcome.check, outcome.crashed) == ("adapters", "test_trainable_parameters", False)
    assert outcome.caught == dict.fromkeys(PEERS, peers) | {OURS: True}


def test_an_error_is_seen_by_everybody(pair, given, tmp_path):
    outcome = judged(pair, given, tmp_path, 33_920, trajectory={"error": "TypeError: no"})
    assert (outcome.rung, outcome.check, outcome.where) == ("trajectory", CRASH, "TypeError: no")
    assert all(outcome.caught.values())


def test_an_error_in_a_part_of_the_ladder_alone_is_the_ladders(pair, given, tmp_path):
    """The peers' parts are recorded all the same, and the peers see what there is to see."""
    outcome = judged(pair, given, tmp_path, 33_920, adapters={"error": "TypeError: no"})
    assert (outcome.rung, outcome.check, outcome.crashed) == ("adapters", CRASH, False)
    assert outcome.caught == dict.fromkeys(PEERS, False) | {OURS: True}


def test_an_error_in_a_peers_part_is_not_the_ladders(pair, given, tmp_path):
    outcome = judged(pair, given, tmp_path, 33_920, **{"merge in float32": {"error": "TypeError: no"}})
    assert outcome.caught == dict.fromkeys(PEERS, True) | {OURS: False}


def test_the_ladder_sees_it_first_where_it_was_first(pair, given, tmp_path):
    """An error after the check that failed: the rung is the check's, and the peers have seen it too."""
    outcome = judged(pair, given, tmp_path, 33_921, trajectory={"error": "TypeError: no"})
    assert (outcome.rung, outcome.check) == ("adapters", "test_trainable_parameters")
    assert all(outcome.peers.values())


def test_no_answer_is_an_error(pair, given, tmp_path):
    outcome = judged(pair, given, tmp_path, 33_920, adapters=Lost("no answer in 600 s"))
    assert (outcome.rung, outcome.check, outcome.where) == ("", CRASH, "no answer in 600 s")
    assert all(outcome.caught.values())


def test_only_a_mutant_of_merging_shares_the_clean_run(pair, given, tmp_path):
    """Control of the saving: others record the whole ladder."""
    recorder = Recorder(pair.recipe, given["plan"], 33_920)
    judge_mutant(draw(1, 1, ("tpu_impl.merge",))[0], recorder, pair, given, tmp_path / "plant")
    judge_mutant(MUTANT, recorder, pair, given, tmp_path / "plant")
    assert [asked["whole"] for asked in recorder.asked if "plant" in asked] == [False, True]
    assert not (tmp_path / "plant").exists()


def test_a_stopped_run_goes_on(tmp_path):
    """What was judged is read again; a control that saw something is refused."""
    outcomes = [Outcome("mutant-000", "merge", "test_x", "here", {"keys and shapes": True}), Outcome("mutant-001")]
    for outcome in outcomes:
        run._append(tmp_path / "outcomes.jsonl", f"key of {outcome.name}", outcome)
    assert list(run._read(tmp_path / "outcomes.jsonl").values()) == outcomes
    assert run._read(tmp_path / "none.jsonl") == {}
    run._check_control(run.CONTROL)
    with pytest.raises(ContractError, match="nothing planted: merge test_x"):
        run._check_control(outcomes[0])


def test_every_waiting_one_is_judged_once_whatever_the_jobs(tmp_path):
    waiting = [(f"mutant-{number}", lambda *_, number=number: Outcome(str(number))) for number in range(20)]
    found = dict(run._judged(waiting, [Nothing(), Nothing(), Nothing()], None, {}, tmp_path))
    assert {name: outcome.name for name, outcome in found.items()} == {f"mutant-{number}": str(number) for number in range(20)}


def test_an_error_of_the_judging_is_not_swallowed(tmp_path):
    """Control: a defect of this code ends the run; it is no outcome."""
    def broken(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run._judged([("mutant-0", broken)], [Nothing()], None, {}, tmp_path))


def test_what_is_printed(capsys):
    """The rate leaves the equivalent ones out; survivors come with place and change."""
    mutants = draw(4, 1, ("tpu_impl.optimizer",))
    found = [
        Outcome(mutants[0].id, "merge", "test_x", "", dict.fromkeys(PEERS, False)),
        Outcome(mutants[1].id, "tokens", CRASH, "", dict.fromkeys(PEERS, True)),
        Outcome(mutants[2].id, peers=dict.fromkeys(PEERS, False)),
        Outcome(mutants[3].id, peers=dict.fromkeys(PEERS, False)),
    ]
    print_mutants(mutants, {outcome.name: outcome for outcome in found}, {mutants[3].id})
    printed = capsys.readouterr().out
    assert "4 mutants, 1 of them equivalent, 1 end in an error" in printed
    assert "2 of 3, 66.7 %" in printed and "1 of 2, 50.0 %" in printed and "1 of 3, 33.3 %" in printed
    assert mutants[2].place in printed and mutants[3].place not in printed
    assert shares(found, "", "").row_count == len(PEERS) + 1
