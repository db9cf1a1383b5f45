"""Training rows from a JSON Lines file or a Hugging Face dataset folder, as chat messages."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.contract.errors import ContractError

# Field pairs that stand for (question, answer): CodeV-R1's first.
PAIRS = (("prompt", "response"), ("prompt", "completion"), ("instruction", "output"))
REASONING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """`row` is the index of the line in the rows file; `messages` are (role, content) pairs."""

    row: int
    messages: tuple[tuple[str, str], ...]

    @property
    def answer(self) -> str:
        return "".join(content for role, content in self.messages if role == "assistant")


def read_rows(path: Path, *, strip: bool) -> tuple[Row, ...]:
    """All rows of `path`; `strip` removes reasoning blocks from the answers (the recipe's strip_reasoning)."""
    records = list(_records(Path(path)))
    if not records:
        raise ContractError(f"rows {path}: no rows in it")
    return tuple(Row(index, _messages(record, index, path, strip)) for index, record in enumerate(records))


def strip_reasoning(text: str) -> str:
    """`text` without `<think>` blocks; the answer marks and the code fence stay (as both published scripts do)."""
    return REASONING.sub("", text)


def _records(path: Path) -> Iterator[dict]:
    if path.is_dir():
        from datasets import load_from_disk  # only here: JSON Lines needs no dataset library

        yield from load_from_disk(str(path))
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise ContractError(f"rows {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        yield _record(line, f"{path}:{number}")


def _record(line: str, where: str) -> dict:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ContractError(f"{where}: a row is an object, not {type(record).__name__}")
    return record


def _messages(record: dict, index: int, path: Path, strip: bool) -> tuple[tuple[str, str], ...]:
    turns = [(turn["role"], turn["content"]) for turn in record["messages"]] if "messages" in record else _pair(record)
    if not turns or not all(isinstance(content, str) for _, content in turns):
        fields = ", ".join(map("/".join, PAIRS))
        raise ContractError(f"{path}: row {index} has keys {sorted(record)}; allowed: {fields} or messages, all text")
    return tuple((role, strip_reasoning(text) if strip and role == "assistant" else text) for role, text in turns)


def _pair(record: dict) -> list[tuple[str, str]]:
    for question, answer in PAIRS:
        if question in record and answer in record:
            return [("user", record[question]), ("assistant", record[answer])]
    return []
