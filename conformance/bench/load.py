"""What is sent where within which limits, and what a run of it leaves behind. No client is imported: figures need none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from conformance.bench.arrivals import Schedule
from conformance.bench.events import Record
from conformance.contract.errors import ContractError


@dataclass(frozen=True, slots=True)
class Target:
    """`url`: http://host:port. `extra` goes into every body as it is, such as {"return_token_ids": True}."""

    url: str
    model: str
    extra: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if not self.url.startswith(("http://", "https://")):
            raise ContractError(f"url {self.url!r} does not start with http:// or https://")


@dataclass(frozen=True, slots=True)
class Load:
    """prompts int32 [requests, length]. Fixed length: exactly max_tokens (`ignore_eos`); else the model's own end counts."""

    schedule: Schedule
    prompts: np.ndarray
    max_tokens: int
    fixed_length: bool = True

    def __post_init__(self):
        if len(self.schedule) != len(self.prompts):
            raise ContractError(f"{len(self.schedule)} scheduled requests, {len(self.prompts)} prompts: there must be as many")
        if self.max_tokens < 1:
            raise ContractError(f"max_tokens = {self.max_tokens!r} is not at least 1")


@dataclass(frozen=True, slots=True)
class Limits:
    """`connections`: more requests than this under way wait, which the dispatch lag shows. `total_s`: of one request, from its send.

    There is no limit on the time between two chunks: its timer would be set anew at each, a tenth of the client's CPU time.
    """

    connections: int = 1024
    total_s: float = 300.0
    connect_s: float = 10.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Measurement:
    """A run's raw events: one record a request, in order; what the client itself used."""

    origin_ns: int  # CLOCK_MONOTONIC of offset 0
    started: str  # UTC, ISO 8601
    interrupted: bool
    cpu_s: float  # user and system, during the run
    max_rss_mib: float  # of the process so far
    records: tuple[Record, ...] = ()
