"""The command that serves on a TPU v6e-8, word by word."""

import pytest

from conformance.contract.serving.command import main
from tpu_impl.serve import PLATFORM

IMAGE = "vllm/vllm-tpu@sha256:" + "0123456789abcdef" * 4

GOLDEN = (
    "docker run --rm --name parity-serve-8100 --entrypoint vllm --privileged --network host --shm-size 16G "
    "--volume {checkpoint}:/model:ro --volume {cache}:/cache --env HF_HUB_OFFLINE=1 --env VLLM_NO_USAGE_STATS=1 --env DO_NOT_TRACK=1 "
    "--env VLLM_XLA_CACHE_PATH=/cache --env MODEL_IMPL_TYPE=vllm --env JAX_LOG_COMPILES=1 "
    f"{IMAGE} serve /model --served-model-name merged --host 127.0.0.1 --port 8100 --tensor-parallel-size 8 --max-model-len 4096 "
    "--dtype bfloat16 --kv-cache-dtype fp8_e5m2 --gpu-memory-utilization 0.85 --max-num-seqs 256 --max-num-batched-tokens 8192 "
    "--seed 0 --no-enable-prefix-caching --disable-chunked-mm-input\n"
)


def test_the_command(session, tmp_path, capsys):
    """What the options say is in it, and nothing is left to vLLM's defaults."""
    checkpoint = session.recipe.checkpoint_dir
    chosen = ["--port", "8100", "--model-length", "4096", "--kv-dtype", "fp8_e5m2", "--memory-fraction", "0.85"]
    assert main(PLATFORM, ["--checkpoint", str(checkpoint), "--image", IMAGE, "--cache", str(tmp_path), *chosen, "--print"]) == 0
    assert capsys.readouterr().out == GOLDEN.format(checkpoint=checkpoint.resolve(), cache=tmp_path.resolve())


@pytest.mark.parametrize("image", ["", "vllm/vllm-tpu:gemma4", "vllm/vllm-tpu@sha256:0123"])
def test_an_image_that_is_not_pinned_is_refused(session, image, capsys):
    assert main(PLATFORM, ["--checkpoint", str(session.recipe.checkpoint_dir), "--image", image, "--print"]) == 2
    assert "NAME@sha256:DIGEST" in capsys.readouterr().err
