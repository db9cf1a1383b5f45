"""Plants the faults of the rung serving and records, through real vLLM servers, only what the catalogue says that each changes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.children import run_all, stack_child
from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.errors import ContractError
from conformance.contract.faults import Fault, check_known, of_stack, record_parts
from conformance.contract.plan import Plan
from conformance.contract.progress import Progress, timed
from conformance.contract.serving import cpu
from conformance.contract.serving.command import parser, starter
from conformance.contract.serving.recorder import PARTS, RUNG, Start, start_merged
from conformance.contract.serving.served import Served
from conformance.faults.serving.plants import SERVER, planted
from conformance.pair import SERVE, Pair

NO_CONTROLS = "planted faults stand for the controls"
TEMPLATE, TURN_END = "chat_template.jinja", "<turn|>"


def why_not() -> str:
    """Why no server can be started here; empty: one can."""
    try:
        cpu.vllm_python()
    except ContractError as error:
        return str(error)
    return ""


def serve_clean(out: Path, pair: Pair) -> Pair:
    """The pair with the rung serving of both sides; what is there is kept."""
    missing = [bundle for bundle in (pair.reference, pair.port) if not bundle.has(RUNG)]
    given = ["--recipe", str(out / "recipe.toml"), "--no-controls", NO_CONTROLS]
    run_all(
        stack_child(one.stack, [*SERVE, *given, "--bundle", str(one.path), "--log", str(out / f"serving-{one.stack}.log")])
        for one in missing
    )
    return Pair(pair.recipe, Bundle(pair.reference.path), Bundle(pair.port.path))


def record_server_faults(bundle: Bundle, plan: Plan, out: Path, faults: Iterable[Fault], progress: Progress) -> None:
    """Writes OUT/<id>/, not there yet, for every fault of the port's `bundle`: those that share a start first, on one server."""
    faults = of_stack(tuple(faults), "server")
    check_known(faults, PARTS, SERVER)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "servers.log").open("w", buffering=1) as log:
        start = starter(cpu.PLATFORM, parser(cpu.PLATFORM).parse_args(["--port", "0"]), progress, log.write)
        shared = [fault for fault in faults if fault.start == "shared"]
        with ExitStack() as stack:
            up = stack.enter_context(start_merged(bundle, plan, start)) if shared else None
            for fault in shared:
                with timed(progress, fault.id), planted(fault):
                    _record(fault, bundle, plan, out, lambda: up)
        for fault in faults:
            if fault.start == "own":
                with timed(progress, fault.id), planted(fault), ExitStack() as stack:
                    _record(fault, bundle, plan, out, _starting(stack, bundle, plan, start))


def _starting(stack: ExitStack, bundle: Bundle, plan: Plan, start: Start) -> Callable[[], Served]:
    """A server that starts when the first part asks for it, so that one that doesn't start is an outcome too."""
    servers: list[Served] = []

    def server() -> Served:
        if not servers:
            servers.append(stack.enter_context(start_merged(bundle, plan, start)))
        return servers[0]

    return server


def _record(fault: Fault, bundle: Bundle, plan: Plan, out: Path, server: Callable[[], Served]) -> None:
    with BundleWriter(out / fault.id, stack=fault.side, recipe=plan.recipe, plan=plan) as writer:
        one_rung = _OneRung(writer)
        parts = {name: lambda _, writer, part=part: part(one_rung, server(), bundle, plan) for name, part in PARTS.items()}
        record_parts(fault, parts, None, writer, out)


class _OneRung:
    """Takes what is recorded of the rung alone into a bundle of its own."""

    def __init__(self, writer: BundleWriter):
        self._writer = writer

    def array(self, key: str, value) -> None:
        self._writer.array(RUNG, key, value)

    def line(self, series: str, **fields) -> None:
        self._writer.line(RUNG, series, **fields)


@contextmanager
def with_another_template(checkpoint: Path) -> Iterator[Path]:
    """A folder of the same files whose chat template does not end its turns."""
    with TemporaryDirectory(prefix="template-") as folder:
        for path in checkpoint.iterdir():
            (Path(folder) / path.name).symlink_to(path.resolve())
        copy = Path(folder) / TEMPLATE
        text = copy.read_text()
        if TURN_END not in text:
            raise ContractError(f"{checkpoint / TEMPLATE}: no {TURN_END} in it, so nothing was planted")
        copy.unlink()
        copy.write_text(text.replace(TURN_END, ""))
        yield Path(folder)
