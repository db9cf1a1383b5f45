"""When requests are sent: an open loop at a rate, a burst, or a closed loop. One schedule, known by its digest, for both platforms."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.contract.digest import sha256_array, sha256_json
from conformance.contract.draws import philox
from conformance.contract.errors import ContractError

# Offsets are whole microseconds: the last bit of a platform's logarithm then never reaches the digest.
MICROSECOND_S = 1e-6


@dataclass(frozen=True, slots=True)
class Schedule:
    """offsets_s float64 [requests]: seconds from the start of the run, in order.

    `concurrency` is set for a closed loop alone: so many requests are under way, each finished one is followed by the next.
    A closed loop has no arrivals: its offsets are 0 and it says nothing about latency at a rate.
    """

    kind: Literal["poisson", "burst", "closed"]
    offsets_s: np.ndarray
    rate_per_s: float | None = None
    concurrency: int | None = None

    @property
    def digest(self) -> str:
        offsets = sha256_array(self.offsets_s.astype("<f8"))
        return sha256_json({"kind": self.kind, "concurrency": self.concurrency, "offsets": offsets})

    def __len__(self) -> int:
        return len(self.offsets_s)


def poisson(rate_per_s: float, requests: int, seed: int) -> Schedule:
    """Open loop: gaps exponential with mean 1 / rate, drawn by Philox; the first request comes after the first gap."""
    _need_requests(requests)
    if not 0 < rate_per_s < 1 / MICROSECOND_S:
        raise ContractError(f"rate {rate_per_s!r} requests/s is not above 0 and below {1 / MICROSECOND_S:.0f}")
    gaps_s = philox("arrivals", seed, "gaps").standard_exponential(requests) / rate_per_s
    return Schedule("poisson", np.rint(np.cumsum(gaps_s) / MICROSECOND_S) * MICROSECOND_S, rate_per_s=float(rate_per_s))


def burst(requests: int) -> Schedule:
    """All at once, for peak throughput."""
    _need_requests(requests)
    return Schedule("burst", np.zeros(requests))


def closed_loop(concurrency: int, requests: int) -> Schedule:
    """`concurrency` requests under way until all `requests` are done."""
    _need_requests(requests)
    if not 1 <= concurrency <= requests:
        raise ContractError(f"concurrency {concurrency!r} is not from 1 to the number of requests, {requests}")
    return Schedule("closed", np.zeros(requests), concurrency=concurrency)


def _need_requests(requests: int) -> None:
    if requests < 1:
        raise ContractError(f"{requests!r} requests: at least 1 is needed")
