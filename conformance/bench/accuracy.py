"""The error of a client's times against the stamps of the scripted server (fixtures/scripted_server.py)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import urlopen

import numpy as np

from conformance.bench.events import Record, whole
from conformance.bench.prompts import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Errors:
    """Milliseconds [whole replies]: when the first token was seen minus when it was written; |TPOT seen - TPOT written|."""

    ttft_ms: np.ndarray
    tpot_ms: np.ndarray


def stamps_of(url: str) -> list[dict]:
    """What the server saw of each request: prompt_head, received_ns, token_ns, written_ns (CLOCK_MONOTONIC, which processes share)."""
    with urlopen(f"{url}/stamps") as reply:
        return json.load(reply)


def errors_of(records: Sequence[Record], prompts: np.ndarray, stamps: list[dict]) -> Errors:
    """Requests are found by their first block, which no two share. The scripted server writes one token a chunk."""
    written = {tuple(stamp["prompt_head"]): stamp["token_ns"] for stamp in stamps}
    ttft, tpot = [], []
    for record in whole(tuple(records)):
        token_ns = written[tuple(prompts[record.index][:BLOCK_TOKENS].tolist())]
        ttft.append(record.first_token_ns - token_ns[0])
        spans_ns = record.last_token_ns - record.first_token_ns, token_ns[-1] - token_ns[0]
        tpot.append(abs(spans_ns[0] - spans_ns[1]) / (record.usage_completion_tokens - 1))
    return Errors(np.asarray(ttft) / 1e6, np.asarray(tpot) / 1e6)
