"""The server that a sweep measures: one that is up already, or one that `parity serve` starts and stops."""

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conformance.bench.compiling import FileWatch, Watch
from conformance.bench.load import Target
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress
from conformance.contract.serving.api import HEALTH_S, Api
from conformance.contract.serving.launch import Launch
from conformance.contract.serving.manifest import read_manifest
from conformance.contract.serving.server import Server, free_port
from conformance.contract.serving.settings import SERVED_NAME

HOST = "127.0.0.1"
POLL_S = 0.2
GRACE_S = 60.0  # `parity serve` itself waits for its server before it kills it
READY_S = 7200.0  # the platform's own limit, of `parity serve`, comes first and says why


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up. `manifest`: as `parity serve` writes it, empty where nobody did; `watch`: of its log, where it is known.

    `check` raises when it has ended.
    """

    target: Target
    manifest: dict = field(default_factory=dict)
    watch: Watch | None = None
    check: Callable[[], None] = lambda: None


def running_at(target: Target, log: Path | None, manifest: Path | None) -> Running:
    """Somebody else's server; `log`: the file that it writes, `manifest`: that of its `parity serve`."""
    known = read_manifest(manifest) if manifest else {}

    def check() -> None:
        try:
            urllib.request.urlopen(f"{target.url.rstrip('/')}/health", timeout=HEALTH_S).close()
        except OSError as error:
            raise ContractError(f"server {target.url}: not healthy: {error}") from error

    check()
    return Running(target, known, FileWatch(on_cpu=_on_cpu(known), path=log) if log else None, check)


@contextmanager
def launched(module: str, arguments: list[str], folder: Path, progress: Progress) -> Iterator[Running]:
    """`python -m MODULE ARGUMENTS` on a free port; its manifest and log go into `folder`. Stopped when the block is left."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp, port = time.strftime("%Y%m%dT%H%M%S"), free_port(HOST)
    manifest, log = folder / f"{stamp}.json", folder / f"{stamp}.log"
    argv = (sys.executable, "-m", module, *arguments, "--host", HOST, "--port", str(port), "--manifest", str(manifest))
    watch, api = Watch(on_cpu=module.endswith(".cpu")), Api(HOST, port, SERVED_NAME)
    with ExitStack() as stack:
        file = stack.enter_context(log.open("w", buffering=1))

        def take(line: str) -> None:
            file.write(line)
            watch(line)

        server = stack.enter_context(Server(Launch(argv, {}), api, progress, take, GRACE_S))
        server.wait_ready(READY_S)
        while not manifest.is_file():  # written when what is served has been checked
            server.check()
            time.sleep(POLL_S)
        yield Running(Target(api.url, SERVED_NAME), json.loads(manifest.read_text()), watch, server.check)


def _on_cpu(manifest: dict) -> bool:
    return manifest.get("settings", {}).get("platform") == "cpu"
