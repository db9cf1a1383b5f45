"""Rung checkpoint: a resumed run is the uninterrupted run, bit for bit, and a kill loses nothing that was saved."""

LEAST_PARTIAL = 8  # of 20 kills: fewer, and the kills did not hit saves


def test_a_resumed_run_is_the_uninterrupted_run(judge, stacks):
    """Loss, adapters, moments and data position after a resume are bit-equal, with and without dropout."""
    for bundle in stacks:
        lines = bundle.lines("checkpoint", "resume")
        judge.same(f"{bundle.stack}, dropout tried", {line["dropout"] > 0 for line in lines}, {True, False})
        for line in lines:
            for name in ("equal_loss", "equal_adapters", "equal_moments", "equal_position"):
                judge.same(f"{bundle.stack}, dropout {line['dropout']:g}, split at {line['split']}: {name}", line[name], True)


def test_a_kill_loses_no_completed_save(judge, stacks):
    """After every kill the last completed save restores, equal to what was saved."""
    for bundle in stacks:
        for line in bundle.lines("checkpoint", "kill"):
            judge.same(f"{bundle.stack}, kill {line['attempt']} after {line['delay_ms']:.1f} ms", line["equal"], True)


def test_the_kills_hit_saves(judge, stacks):
    """Control: of 20 kills at least 8 left a partial folder behind."""
    for bundle in stacks:
        lines = bundle.lines("checkpoint", "kill")
        judge.same(f"{bundle.stack}, kills", len(lines), 20)
        judge.above(f"{bundle.stack}, partial folders", sum(line["partial"] for line in lines), LEAST_PARTIAL)
