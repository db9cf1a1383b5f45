"""Which of several processes this one is: `accelerate launch` and `torchrun` say it in the environment."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import DistError

PEER_GONE = ("by peer", "Broken pipe")  # gloo's errors are bare RuntimeErrors: connection closed or reset by peer


class ProcessLostError(Exception):
    """Another process of the run ended, so this one cannot go on."""


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_index() -> int:
    """0 is the process that writes."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def ending_together() -> Iterator[None]:
    """Turns what a process meets when another is lost, a broken connection or its launcher's SIGTERM, into one sentence."""
    if processes() == 1:
        yield
        return
    before = signal.signal(signal.SIGTERM, _stopped)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, DistError) and not any(sign in str(error) for sign in PEER_GONE):
            raise
        raise _lost("a connection to it broke") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(number: int, frame) -> None:
    raise _lost("the launcher stops this process")


def _lost(sign: str) -> ProcessLostError:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the message must not be cut by the launcher's own clearing up
    return ProcessLostError(f"process {process_index()} of {processes()} ends because another was lost ({sign})")
