"""Options, markers, header, fixtures: nothing else."""

from pathlib import Path

import pytest

from conformance.bench.training.options import LAUNCHES
from conformance.contract.bundle import Bundle
from conformance.contract.errors import ContractError
from conformance.contract.plan import make_plan
from conformance.contract.recipe import load_recipe
from conformance.contract.schema import RUNGS
from conformance.ladder import Ladder, judge, pytest_pyfunc_call, rung_of  # noqa: F401  (fixture and hook)
from conformance.pair import MODULES, Commands, Pair, exchange_problem, record_pair, replace_checkpoint
from conformance.session import finish
from conformance.summary import BAD_INPUT
from conformance.tolerances import read_tolerances

pytest.register_assert_rewrite("fixtures.bad_input_tests")  # tests that two folders import
TINY = Path(__file__).parent / "conformance" / "recipes" / "tiny.toml"


def pytest_addoption(parser):
    group = parser.getgroup("parity")
    group.addoption("--recipe", type=Path, default=TINY, help="recipe file (default: the tiny recipe)")
    group.addoption("--checkpoint", type=Path, help="checkpoint folder instead of the recipe's")
    group.addoption("--reference-bundle", type=Path, help="compare this recorded bundle instead of recording the reference")
    group.addoption("--port-bundle", type=Path, help="compare this recorded bundle instead of recording the port")
    for stack in MODULES:
        group.addoption(f"--{stack}", metavar="COMMAND", help=f"any command that records the {stack}: COMMAND --recipe R --out BUNDLE")
    group.addoption("--command-folder", type=Path, help="where --reference and --port run (default: here)")
    group.addoption("--out", type=Path, help="keep bundles, findings, report and certificate here")
    group.addoption("--served", type=Path, help="tpu_bench, gpu_bench: the merged checkpoint to serve and measure")
    group.addoption("--serve", default="", help="tpu_bench, gpu_bench: further options of `parity serve`, such as its --image")
    group.addoption("--machine", default="", help="tpu_bench, gpu_bench: such as v6e-8")
    group.addoption("--launches", type=int, default=LAUNCHES, help="tpu_bench, gpu_bench: of training (default: %(default)s)")
    group.addoption("--steps", type=int, help="tpu_bench, gpu_bench: of a launch of training (default: the recipe's)")
    group.addoption("--only", choices=RUNGS, help="run one rung (no certificate)")


def pytest_configure(config):
    config.addinivalue_line("markers", "parity: a check of the ladder (reference against port)")
    config.ladder = Ladder(config)
    config.pluginmanager.register(config.ladder, "ladder")


def pytest_report_header(config):
    return f"parity: recipe {config.getoption('--recipe')}, rungs {' > '.join(RUNGS)}"


def pytest_sessionfinish(session, exitstatus):
    finish(session)


@pytest.fixture(scope="session")
def recipe(request):
    return replace_checkpoint(load_recipe(request.config.getoption("--recipe")), request.config.getoption("--checkpoint"))


@pytest.fixture(scope="session")
def plan(recipe):
    return make_plan(recipe)


@pytest.fixture(scope="session")
def limits():
    return read_tolerances()


@pytest.fixture(scope="session")
def pair(request, recipe, tmp_path_factory) -> Pair:
    """Both bundles: given, or recorded now side by side."""
    option = request.config.getoption
    folder = option("--out") or tmp_path_factory.mktemp("parity")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():  # recording takes minutes: its progress is shown
            bundles = [option(f"--{stack}-bundle") for stack in ("reference", "port")]
            request.config.pair = record_pair(recipe, folder, *bundles, _commands(option))
    except ContractError as error:
        pytest.exit(f"parity: {error}", returncode=BAD_INPUT)
    return request.config.pair


def _commands(option) -> Commands:
    given = {stack: option(f"--{stack}") for stack in MODULES}
    return Commands({stack: command for stack, command in given.items() if command is not None}, option("--command-folder"))


def _rung_recorded(bundle: Bundle, request) -> Bundle:
    rung = rung_of(request.node)
    if rung and not bundle.has(rung):
        refused = bundle.not_recorded.get(rung)
        pytest.skip(f"{bundle.stack} recorded no {rung}" + (f": {refused}" if refused else ""))
    return bundle


@pytest.fixture
def reference(pair, request) -> Bundle:
    return _rung_recorded(pair.reference, request)


@pytest.fixture
def port(pair, request) -> Bundle:
    return _rung_recorded(pair.port, request)


@pytest.fixture
def stacks(reference, port) -> tuple[Bundle, Bundle]:
    """Both bundles, for promises that each stack must keep by itself."""
    return reference, port


@pytest.fixture
def exchanged(pair, reference, port) -> tuple[dict, dict]:
    """Arrays of both second phases (reference's, port's)."""
    problem = exchange_problem(pair)
    if problem:
        pytest.skip(problem)
    return reference.exchange, port.exchange
