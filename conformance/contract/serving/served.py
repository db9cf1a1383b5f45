"""One server that is up, with what is known of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress
from conformance.contract.serving.api import Api
from conformance.contract.serving.launch import MODEL, Platform
from conformance.contract.serving.manifest import describe, read_back, weight_digests
from conformance.contract.serving.server import Server
from conformance.contract.serving.settings import SERVED_NAME, Settings


@dataclass(frozen=True, slots=True)
class Served:
    server: Server
    api: Api
    manifest: dict


@contextmanager
def served(
    platform: Platform, settings: Settings, ready_s: float, progress: Progress, log: Callable[[str], None]
) -> Iterator[Served]:
    """Starts, waits, and asks the server what it is; stops it when the block is left."""
    launch, api = platform.launch(settings), Api(settings.host, settings.port, SERVED_NAME)
    progress(f"sha256 of {settings.checkpoint} ...")
    manifest = describe(settings, launch, weight_digests(settings.checkpoint))
    settings.cache.mkdir(parents=True, exist_ok=True)
    progress(f"starting {launch}")
    with Server(launch, api, progress, log) as server:
        server.wait_ready(ready_s)
        manifest |= read_back(api)
        _check_root(manifest, MODEL if platform.has_container else str(settings.checkpoint))
        yield Served(server, api, manifest)


def _check_root(manifest: dict, expected: str) -> None:
    root = manifest["read_back"]["root"]
    if root != expected:
        raise ContractError(f"server: it says that it serves {root!r}, not {expected!r}")
