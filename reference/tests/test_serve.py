"""The command that serves on GPUs, word by word."""

import pytest

from conformance.contract.serving.command import main
from reference.serve import PLATFORM

IMAGE = "vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4

GOLDEN = (
    "docker run --rm --name parity-serve-8000 --entrypoint vllm --gpus 2 --network host --ipc host "
    "--volume {checkpoint}:/model:ro --volume {cache}:/cache "
    "--env HF_HUB_OFFLINE=1 --env VLLM_NO_USAGE_STATS=1 --env DO_NOT_TRACK=1 --env VLLM_CACHE_ROOT=/cache "
    f"{IMAGE} serve /model --served-model-name merged --host 127.0.0.1 --port 8000 --tensor-parallel-size 2 --max-model-len 16384 "
    "--dtype bfloat16 --kv-cache-dtype auto --gpu-memory-utilization 0.9 --max-num-seqs 256 --max-num-batched-tokens 8192 --seed 0 "
    "--no-enable-prefix-caching --attention-backend TRITON_ATTN\n"
)


def test_the_command(session, tmp_path, capsys):
    checkpoint = session.recipe.checkpoint_dir
    assert main(PLATFORM, ["--checkpoint", str(checkpoint), "--image", IMAGE, "--cache", str(tmp_path), "--print"]) == 0
    assert capsys.readouterr().out == GOLDEN.format(checkpoint=checkpoint.resolve(), cache=tmp_path.resolve())


@pytest.mark.parametrize("image", ["", "vllm/vllm-openai:latest", "vllm/vllm-openai@sha256:0123"])
def test_an_image_that_is_not_pinned_is_refused(session, image, capsys):
    assert main(PLATFORM, ["--checkpoint", str(session.recipe.checkpoint_dir), "--image", image, "--print"]) == 2
    assert "NAME@sha256:DIGEST" in capsys.readouterr().err
