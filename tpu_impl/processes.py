"""Several processes as one run: each holds its own devices and rows; together they are one mesh."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils

from conformance.contract.errors import ContractError

HEARTBEAT_S = 20  # a process that is silent for so long is lost, even on a busy machine; JAX's own default is 100
LOST = 4  # exit code of a process whose peer is lost


@dataclass(frozen=True, slots=True)
class Place:
    """This process's index among `count` that meet at `coordinator` (host:port)."""

    coordinator: str | None = None
    count: int = 1
    index: int = 0


def place_from(coordinator: str | None = None, count: int | None = None, index: int | None = None) -> Place:
    """Given values, else JAX's own environment variables, else a single process."""
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    count = int(os.environ.get("JAX_NUM_PROCESSES", "1")) if count is None else count
    index = int(os.environ.get("JAX_PROCESS_ID", "0")) if index is None else index
    if count > 1 and not coordinator:
        raise ContractError(f"{count} processes need --coordinator HOST:PORT, the same for all of them")
    if not 0 <= index < count:
        raise ContractError(f"--process-id {index} is not below --processes {count}")
    return Place(coordinator, count, index)


@contextmanager
def joined(place: Place) -> Iterator[None]:
    """Inside, `jax.devices()` are those of all processes. A lost peer ends this process with exit code 4 and one line.

    Where JAX's own thread misses the peer's heartbeats first, it aborts the process (SIGABRT) with a line of its own; its
    callback for that ends in std::bad_cast under Python (jaxlib 0.10.2).
    Stock: the coordinator listens on every interface; a process whose peer is gone waits in its exit handler for a barrier
    that cannot come, 5 minutes; SIGTERM is taken for the notice of a preemption, which ends nothing.
    """
    if place.count == 1:
        yield
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        place.coordinator, place.count, place.index, heartbeat_timeout_seconds=HEARTBEAT_S,
        coordinator_bind_address=place.coordinator,
    )  # fmt: skip
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if not is_lost(error):
            raise
        leave(place, error)


def together(point: str) -> None:
    """Waits until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(point)


def gather(value) -> list:
    """Every process's value, in the processes' order; all must ask. By JSON, so that tuples become lists."""
    if jax.process_count() == 1:
        return [value]
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(data.size))
    padded = multihost_utils.process_allgather(np.pad(data, (0, int(sizes.max()) - data.size)))
    return [json.loads(one[:size].tobytes()) for one, size in zip(padded, sizes, strict=True)]


def is_lost(error: Exception) -> bool:
    """Whether an error of a collective says that a peer is gone."""
    return any(sign in str(error) for sign in ("Gloo", "Connection closed by peer", "UNAVAILABLE", "heartbeat"))


def leave(place: Place, error: Exception) -> None:
    """Ends the process at once: its exit handlers would wait for the peer."""
    first = str(error).splitlines()[0][:200]
    says = f"port: process {place.index} of {place.count}: another process is lost ({first}); start all again to resume"
    print(says, file=sys.stderr, flush=True)
    os._exit(LOST)
