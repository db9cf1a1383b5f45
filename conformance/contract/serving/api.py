"""What a vLLM server is asked over HTTP: completions of token ids, chat, tokenisation, and what it says of itself."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from conformance.contract.errors import ContractError

HEALTH_S = 5.0
REPLY_S = 600.0  # one reply; the first one on a TPU may compile
CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Reply:
    """New ids and their log-probabilities; of the prompt's tokens but the first the log-probability, and the likeliest id there.

    Counts are the server's own (`usage`); `prompt_ids` are the ids that it says it was given, and the prompt's values are theirs.
    """

    ids: list[int]
    logprobs: list[float]
    prompt_ids: list[int]
    prompt_logprobs: list[float]
    prompt_argmax: list[int]
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str


class Api:
    """One server; `model` is the name of what is asked: the served checkpoint, or an adapter beside it."""

    def __init__(self, host: str, port: int, model: str):
        self.host, self.port, self.model, self.url = host, port, model, f"http://{host}:{port}"

    def named(self, model: str) -> "Api":
        return Api(self.host, self.port, model)

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=HEALTH_S) as answer:
                return answer.status == 200
        except OSError:
            return False  # not listening yet, or busy with its start

    def complete(self, prompt: Sequence[int], new_tokens: int) -> Reply:
        """Greedy continuation of token ids."""
        sent = [int(token) for token in prompt]
        asked = {"prompt": sent, "max_tokens": new_tokens, "temperature": 0, "logprobs": 0, "prompt_logprobs": 1}
        answer = self._post("/v1/completions", asked | {"return_token_ids": True})
        choice, usage = answer["choices"][0], answer["usage"]
        given = choice["prompt_token_ids"]
        entries = choice["prompt_logprobs"][1:]  # the first token follows nothing
        return Reply(
            ids=choice["token_ids"],
            logprobs=choice["logprobs"]["token_logprobs"],
            prompt_ids=given,
            prompt_logprobs=[entry[str(token)]["logprob"] for entry, token in zip(entries, given[1:], strict=True)],
            prompt_argmax=[_likeliest(entry) for entry in entries],
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            finish_reason=choice["finish_reason"],
        )

    def together(self, ask: Callable, inputs: Sequence) -> list:
        """All at the same time."""
        with ThreadPoolExecutor(len(inputs)) as pool:
            return list(pool.map(ask, inputs))

    def chat_ids(self, messages: list[dict]) -> list[int]:
        """The ids that the server makes of a conversation when it is asked to go on."""
        asked = {"messages": messages, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        return self._post("/v1/chat/completions", asked)["prompt_token_ids"]

    def tokenized(self, messages: list[dict]) -> list[int]:
        return self._post("/tokenize", {"messages": messages, "add_generation_prompt": True})["tokens"]

    def version(self) -> str:
        return json.loads(self._get("/version"))["version"]

    def models(self) -> dict[str, dict]:
        """Name -> what the server says of it (`root`: the folder; `max_model_len`)."""
        return {entry["id"]: entry for entry in json.loads(self._get("/v1/models"))["data"]}

    def cache_info(self) -> dict[str, str]:
        """The KV cache as the server made it, from its metrics; empty where a platform has no such metric."""
        found = CACHE_INFO.search(self._get("/metrics"))
        return dict(LABEL.findall(found[1])) if found else {}

    def _get(self, path: str) -> str:
        return self._open(urllib.request.Request(self.url + path))

    def _post(self, path: str, body: dict) -> dict:
        data = json.dumps({"model": self.model} | body).encode()
        return json.loads(self._open(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})))

    def _open(self, request: urllib.request.Request) -> str:
        where = f"server {request.full_url}"
        try:
            with urllib.request.urlopen(request, timeout=REPLY_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ContractError(f"{where}: status {error.code}: {error.read().decode(errors='replace')[:300]}") from error
        except OSError as error:
            raise ContractError(f"{where}: no answer: {error}") from error


def _likeliest(entry: dict[str, dict]) -> int:
    return int(min(entry, key=lambda token: entry[token]["rank"]))


def padded(rows: Sequence[Sequence[float]], width: int, fill: float, dtype: type) -> np.ndarray:
    """[len(rows), width], filled behind each row's end."""
    whole = np.full((len(rows), width), fill, dtype)
    for row, values in zip(whole, rows, strict=True):
        row[: len(values)] = values
    return whole
