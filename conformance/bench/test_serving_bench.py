"""The whole sweep on the hardware: pytest -m tpu_bench --served merged/ --serve "--image NAME@sha256:..." --machine v6e-8 --out DIR

Without the hardware it is skipped with the reason: NOT PROVEN.
"""

from pathlib import Path

import pytest

from conformance.bench.devices import missing_device
from conformance.cli import main
from conformance.summary import ALL_PASS


def missing(platform: str, served: Path | None, devices: Path = Path("/dev")) -> str:
    """Why nothing can be measured here; empty: it can."""
    if reason := missing_device(platform, devices):
        return reason
    return "" if served else "NOT PROVEN: nothing to serve: give --served DIR, the merged checkpoint"


def measure(request, platform: str) -> int:
    option = request.config.getoption
    if reason := missing(platform, option("--served")):
        pytest.skip(reason)
    out = option("--out") or request.getfixturevalue("tmp_path_factory").mktemp("sweep")
    call = ["sweep", "--platform", platform, "--checkpoint", str(option("--served")), "--out", str(out / f"sweep-{platform}")]
    return main([*call, f"--serve={option('--serve')}", "--machine", option("--machine")])


@pytest.mark.tpu_bench
@pytest.mark.timeout(0)  # hours
def test_every_cell_on_the_tpu_is_valid(request):
    """Each cell of the default sweep keeps every condition, on three starts of the server."""
    assert measure(request, "tpu") == ALL_PASS


@pytest.mark.gpu_bench
@pytest.mark.timeout(0)
def test_every_cell_on_the_gpus_is_valid(request):
    """Each cell of the default sweep keeps every condition, on three starts of the server."""
    assert measure(request, "gpu") == ALL_PASS


def test_without_hardware_it_says_so(tmp_path):
    """Control: with a device and a checkpoint nothing is missing."""
    assert missing("tpu", tmp_path, tmp_path).startswith("NOT PROVEN: no TPU here")
    (tmp_path / "accel0").touch()
    assert missing("tpu", None, tmp_path).startswith("NOT PROVEN: nothing to serve")
    assert missing("tpu", tmp_path, tmp_path) == ""
    assert missing("gpu", tmp_path, tmp_path).startswith("NOT PROVEN: no GPU here")
