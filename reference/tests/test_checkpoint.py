"""A resumed run is the uninterrupted run bit for bit; an unfinished save is never taken for a whole one."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.trainer_utils import get_last_checkpoint

from reference.checkpoint import resumes
from reference.saver import load_state, save_state, state_of, write_whole
from reference.train import Run, train


def test_a_resume_with_dropout_is_the_uninterrupted_run(session):
    found = list(resumes(session, 0.1))
    assert [(one.save, one.saved_step) for one in found] == [("interval", 3), ("last", 5)]
    assert all(one.equal_loss and one.equal_adapters and one.equal_moments and one.equal_position for one in found)


def test_a_lost_random_state_is_told_apart(session, tmp_path):
    """Control: without the saved generator the resumed run draws other dropout masks."""
    run = Run(steps=2, save_every=1, accumulation=1)
    whole = train(session.trainer(session.initial, run, dropout=0.1, out=tmp_path))
    states = torch.load(tmp_path / "checkpoint-1" / "rng_state.pth", weights_only=False)
    states["cpu"] = torch.Generator().manual_seed(99).get_state()
    torch.save(states, tmp_path / "checkpoint-1" / "rng_state.pth")
    shutil.rmtree(tmp_path / "checkpoint-2")
    trainer = session.trainer(session.initial, run, dropout=0.1, out=tmp_path)
    resumed = train(trainer, resume=tmp_path / "checkpoint-1")
    assert any(not np.array_equal(resumed[name], value) for name, value in whole.items())


def test_a_failed_save_leaves_the_last_whole_one(tmp_path):
    save_state(tmp_path / "checkpoint-1", state_of(1, 100))

    def fail(folder):
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "checkpoint-2", fail)
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-1")
    assert torch.equal(load_state(tmp_path / "checkpoint-1")["m"], state_of(1, 100)["m"])


def test_stock_takes_an_unfinished_folder(tmp_path):
    """Control: a folder that a stock save had only begun is the last checkpoint to transformers."""
    save_state(tmp_path / "checkpoint-1", state_of(1, 100))
    (tmp_path / "checkpoint-2").mkdir()
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")


ORPHANING = """
import os, sys, time
from multiprocessing import get_context
from pathlib import Path
from reference.saver import save_forever
if __name__ == "__main__":
    context = get_context("forkserver")
    context.Process(target=save_forever, args=(sys.argv[1], 100)).start()
    while not any(Path(sys.argv[1]).glob("checkpoint-*")):
        time.sleep(0.05)
    os._exit(0)  # as a recorder that is killed: nobody is left to kill the saver
"""


def test_a_saver_ends_with_its_recorder(tmp_path):
    """A recorder that is killed in the middle of the kill test leaves no process behind that saves until the disk is full."""
    script, run = tmp_path / "recorder.py", tmp_path / "run"
    script.write_text(ORPHANING)
    run.mkdir()
    subprocess.run([sys.executable, script, run], check=True, cwd=Path(__file__).parents[2], env=os.environ | {"PYTHONPATH": "."})
    saves = []
    for _ in range(3):
        time.sleep(1)
        saves.append(len(list(run.glob("checkpoint-*"))))
    assert saves[1] == saves[2] > 0
