"""Starting, watching and stopping a server, with one that only pretends; and once with the real one."""

import dataclasses
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cli import main as parity
from conformance.commands import ROOT, without_option
from conformance.contract.errors import ContractError
from conformance.contract.progress import silent
from conformance.contract.serving import cpu, server
from conformance.contract.serving.api import Api
from conformance.contract.serving.command import CACHE, main
from conformance.contract.serving.identity import check_answers
from conformance.contract.serving.launch import Launch
from conformance.contract.serving.served import served
from conformance.contract.serving.server import Server, free_port
from conformance.contract.serving.settings import Settings

HOST = "127.0.0.1"
TINY = ROOT / "fixtures" / "tiny-gemma4"


@pytest.fixture
def python(tmp_path):
    """`python(MODE)`: an interpreter that has the fake vLLM."""

    def written(mode: str) -> str:
        path = tmp_path / f"python-{mode}"
        words = [sys.executable, str(Path(__file__).with_name("fake_vllm.py")), mode]
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)
        return str(path)

    return written


def launched(python: str, port: int) -> Launch:
    options = {"--model": str(TINY), "--served-model-name": "merged", "--host": HOST, "--port": str(port)}
    return Launch((python, *(word for pair in options.items() for word in pair)), {})


def started(python: str, log=silent) -> Server:
    port = free_port(HOST)
    return Server(launched(python, port), Api(HOST, port, "merged"), silent, log)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --checkpoint DIR"),
        (["--checkpoint", "google/gemma-4-31b-it"], "a hub's name would serve the base model"),
        (["--checkpoint", str(ROOT / "docs")], "no config.json"),
        (["--record"], "--record needs --bundle"),
        (["--bundle", "nowhere", "--record"], "no manifest.json"),
        (["--checkpoint", str(TINY)], "PARITY_VLLM_PYTHON"),
        (["--checkpoint", str(TINY), "--python", "/no/python"], "is no program here"),
        (["--checkpoint", str(TINY), "--python", sys.executable], "has none"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, message, capsys, monkeypatch):
    """Exit code 2, before anything starts."""
    monkeypatch.delenv(cpu.PYTHON, raising=False)
    assert main(cpu.PLATFORM, arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("serve: ") and message in error and error.count("\n") == 1


def test_parity_serve_wants_a_platform(capsys):
    assert parity(["serve", "--checkpoint", str(TINY)]) == 2
    assert "tpu, gpu, cpu" in capsys.readouterr().err


def test_the_platforms_own_options_are_passed_on():
    """All but the platform, which is the module that takes them."""
    for words in (["--platform", "tpu", "--print"], ["--print", "--platform=tpu"]):
        assert without_option(words, "--platform") == ["--print"]


def test_a_server_is_waited_for_and_stopped(python):
    """Its log is passed on, and nothing of it is left."""
    lines = []
    with started(python("serves"), lines.append) as up:
        up.wait_ready(30)
        up.check()
        pid = up._process.pid
    assert lines == [f"fake server {pid} starts\n"]
    assert is_gone(pid)


def test_a_server_that_dies_at_its_start_says_why(python):
    """The end of its log is in the error."""
    with started(python("dies")) as up, pytest.raises(ContractError, match=r"exit code 1; the last lines(?s:.*)no HBM left"):
        up.wait_ready(30)


def test_the_wait_has_a_limit(python):
    with started(python("hangs")) as up:
        with pytest.raises(ContractError, match=r"not ready within 1 s; its last line: fake server"):
            up.wait_ready(1)
        pid = up._process.pid
    assert is_gone(pid)


def test_a_deaf_server_is_killed(python, tmp_path, monkeypatch):
    """SIGKILL follows where SIGTERM is ignored; a container, which SIGKILL of its client leaves alone, is killed by its name."""
    monkeypatch.setattr(server, "GRACE_S", 0.5)
    port, killed = free_port(HOST), tmp_path / "killed"
    launch = dataclasses.replace(launched(python("deaf"), port), kill=("touch", str(killed)))
    with Server(launch, Api(HOST, port, "merged"), silent, silent) as up:
        up.wait_ready(30)
        pid = up._process.pid
    assert is_gone(pid) and killed.exists()


def test_a_taken_port_is_refused(python):
    """Else another server would answer in the place of ours."""
    with started(python("serves")) as up:
        up.wait_ready(30)
        with pytest.raises(ContractError, match="choose another --port"):
            server.check_free(HOST, up.api.port)


def test_a_server_of_something_else_is_refused(python, tmp_path):
    """It says itself which folder it has loaded."""
    with pytest.raises(ContractError, match=r"it serves '/somewhere/else', not '.*tiny-gemma4'"), _up(python("base"), tmp_path):
        pass


def test_the_manifest_has_what_was_set_and_what_was_read_back(python, tmp_path):
    with _up(python("serves"), tmp_path) as up:
        manifest = up.manifest
    assert manifest["settings"]["kv_dtype"] == manifest["read_back"]["cache_dtype"] == "auto"
    assert manifest["versions"] == {"vllm": "0.0.fake"}
    assert set(manifest["weights_sha256"]) == {path.name for path in TINY.glob("*.safetensors")}
    assert "--no-enable-prefix-caching" in manifest["argv"]


OURS, FRONT_DOOR = ["conformance.contract.serving.cpu"], ["conformance.cli", "serve", "--platform", "cpu"]


@pytest.mark.parametrize(
    ("front", "sent", "shell"),
    [(OURS, signal.SIGINT, ""), (OURS, signal.SIGTERM, ""), (FRONT_DOOR, signal.SIGTERM, "trap '' INT; ")],
)
def test_whatever_ends_the_command_ends_the_server(front, sent, shell, python, tmp_path):
    """Ctrl-C and SIGTERM, also through `parity serve`, also as a script's background command; the exit code is that of Ctrl-C."""
    words = ["--checkpoint", str(TINY), "--python", python("serves"), "--port", "0", "--cache", str(tmp_path / "cache")]
    command = shlex.join([sys.executable, "-m", *front, *words, "--manifest", str(tmp_path / "manifest.json")])
    process = subprocess.Popen(["sh", "-c", f"{shell}exec {command}"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    pid = None
    for line in process.stderr:
        if line.startswith("fake server"):
            pid = int(line.split()[2])
        if "manifest:" in line:
            break
    process.send_signal(sent)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert pid and is_gone(pid)
    assert (tmp_path / "manifest.json").is_file()


def test_the_base_is_refused_by_its_own_answers(pair, plan):
    """Control, on the real server: the base model's answers are not those of the merged checkpoint."""
    try:
        python = cpu.vllm_python()
    except ContractError as error:
        pytest.skip(str(error))
    with _up(python, CACHE.expanduser(), pair.recipe.checkpoint_dir) as up:
        pid = up.server._process.pid
        with pytest.raises(ContractError, match="does not answer as the merged checkpoint"):
            check_answers(up.api, pair.port, plan, dtype="float32", kv_dtype="auto")
    assert is_gone(pid)


def _up(python: str, cache: Path, checkpoint: Path = TINY):
    platform = cpu.PLATFORM
    settings = Settings(
        platform="cpu", checkpoint=checkpoint, tensor_parallel=1, model_length=1024, dtype="float32", kv_dtype="auto",
        quantisation="none", memory_fraction=0.9, max_sequences=32, max_batched_tokens=2048, prefix_caching=False, seed=0, host=HOST,
        port=free_port(HOST), cache=cache, python=python,
    )  # fmt: skip
    return served(platform, settings, platform.ready_s, silent, silent)
