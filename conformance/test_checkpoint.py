"""Rung checkpoint: a resumed run is the uninterrupted run, bit for bit, and a kill loses nothing that was saved."""

SAVES = ("interval", "last")  # every few steps, and because a run ends
LEAST_PARTIAL = 8  # of 20 kills: fewer, and the kills did not hit saves


def test_a_resumed_run_is_the_uninterrupted_run(judge, stacks):
    """Loss, adapters, moments and data position after a resume are bit-equal, with and without dropout, from any save."""
    for bundle in stacks:
        lines = bundle.lines("checkpoint", "resume")
        tried = {f"{line['save']}, {'with' if line['dropout'] else 'no'} dropout" for line in lines}
        judge.same(f"{bundle.stack}, tried", tried, {f"{save}, {which} dropout" for save in SAVES for which in ("no", "with")})
        for line in lines:
            for name in ("equal_loss", "equal_adapters", "equal_moments", "equal_position"):
                judge.same(f"{_place(bundle, line)}: {name}", line[name], True)


def test_every_save_says_where_the_data_stand(judge, stacks):
    """A save, the last one of a run too, holds the data position: a resumed run need not load the rows that it skips."""
    for bundle in stacks:
        for line in bundle.lines("checkpoint", "resume"):
            judge.same(f"{_place(bundle, line)}: step that the save holds", line["saved_step"], line["split"])


def _place(bundle, line: dict) -> str:
    return f"{bundle.stack}, dropout {line['dropout']:g}, {line['save']} save at {line['split']}"


def test_a_kill_loses_no_completed_save(judge, stacks):
    """After every kill the last completed save restores, equal to what was saved."""
    for bundle in stacks:
        for line in bundle.lines("checkpoint", "kill"):
            where = f"{bundle.stack}, kill {line['attempt']} after {line['delay_ms']:.1f} ms"
            judge.at_least(f"{where}, step", line["restored_step"], 1)  # every kill comes after a first save
            judge.same(where, line["equal"], True)


def test_the_kills_hit_saves(judge, stacks):
    """Control: of 20 kills at least 8 left a partial folder behind."""
    for bundle in stacks:
        lines = bundle.lines("checkpoint", "kill")
        judge.same(f"{bundle.stack}, kills", len(lines), 20)
        judge.above(f"{bundle.stack}, partial folders", sum(line["partial"] for line in lines), LEAST_PARTIAL)
