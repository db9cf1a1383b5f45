"""A compilation in the window is seen in the log, and a log that could not show one proves nothing."""

import pytest

from conformance.bench import compiling
from conformance.bench.compiling import FileWatch, Watch, compile_check
from conformance.findings import Verdict

MONITOR = "Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn."
VERBOSE = "non-default args: {'jit_monitor_verbose': True}"
KERNEL = "Triton kernel JIT compilation during inference: rms_norm. This causes a latency spike; consider extending warmup"
JAX = "Finished XLA compilation of jit(step) in 1.234567890 sec"
EAGER = "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup."


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(compiling, "SETTLE_S", 0.0)


def verdict(before, inside, **watch):
    taken = Watch(**watch)
    for line in before:
        taken(line)
    taken.mark()
    for line in inside:
        taken(line)
    return compile_check(taken.window()).verdict


@pytest.mark.parametrize(
    "line",
    [
        KERNEL,
        JAX,
        "Compilation of step --> {'num_tokens': 64} finished in 2.03 [secs].",
        "Precompile backbone --> {'num_tokens': 64}",
        "Recompilation after warm up is detected during execute_model. num_xla_graphs = 3 curr_cached_graph = 4",
        "Compiling a graph for compile range (1, 8192) takes 3.10 s",
        "Dynamo bytecode transform time: 4.05 s",
        "Graph capturing finished in 3 secs, took 0.62 GiB",
    ],
)
def test_each_stacks_line_is_seen_in_the_window_alone(line):
    """In the window it fails; before it, it is the start that every server has."""
    shown = [MONITOR, VERBOSE, JAX]
    assert verdict(shown, [line]) is Verdict.FAIL
    assert verdict([*shown, line], ["GET /metrics 200"]) is Verdict.PASS


def test_a_log_without_signs_proves_nothing():
    """tpu-inference tells of its own precompilation, and not of what JAX compiles later: JAX_LOG_COMPILES=1 does."""
    assert verdict(["Precompile backbone --> {'num_tokens': 64}"], []) is Verdict.NOT_PROVEN
    assert verdict([MONITOR], []) is Verdict.PASS
    assert verdict([JAX], []) is Verdict.PASS


def test_a_monitor_that_tells_once_proves_nothing_after_it():
    """vLLM's monitor is silent on a kernel's second shape, unless told to be verbose."""
    assert verdict([MONITOR, KERNEL], []) is Verdict.NOT_PROVEN
    assert verdict([VERBOSE, MONITOR, KERNEL], []) is Verdict.PASS


def test_eager_mode_is_a_sign_on_cpus_alone():
    assert verdict([EAGER], [], on_cpu=True) is Verdict.PASS
    assert verdict([EAGER], []) is Verdict.NOT_PROVEN


def test_a_log_file_is_read_on(tmp_path):
    """Line by line: half a line waits for its other half."""
    path = tmp_path / "server.log"
    path.write_text(f"{MONITOR}\n{VERBOSE}\n{KERNEL}\n")
    watch = FileWatch(path=path)
    watch.mark()
    with path.open("a") as file:
        file.write(KERNEL[:30])
        file.flush()
        assert compile_check(watch.window()).verdict is Verdict.PASS
        file.write(f"{KERNEL[30:]}\n")
        file.flush()
        assert watch.window().compiled == (KERNEL,)
