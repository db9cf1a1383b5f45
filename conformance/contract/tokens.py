"""The contract's own tokenisation: `tokenizers` and `jinja2` only. Both stacks must arrive at the same ids by their own path."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from conformance.contract.digest import sha256_bytes
from conformance.contract.errors import ContractError

# Private-use characters that mark where a `{% generation %}` block starts and ends in the rendered text.
START, END = "\ue0f0", "\ue0f1"


class Generation(Extension):
    """`{% generation %}...{% endgeneration %}`: the block that a chat template marks as the assistant's own words."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = [nodes.Output([nodes.TemplateData(char)]).set_lineno(line) for char in (START, END)]
        return [mark[0], *body, mark[1]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """ids int32 [n], loss_mask uint8 [n]: 1 where the token is a target (inside a generation block)."""

    ids: np.ndarray
    loss_mask: np.ndarray


class ChatTokenizer:
    """Tokenizer, chat template and special ids of a checkpoint folder."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self._tokenizer = Tokenizer.from_file(str(self._need("tokenizer.json")))
        self._config = json.loads(self._need("tokenizer_config.json").read_text())
        source = self._template_source()
        self.template_sha256 = sha256_bytes(source.encode())
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
        )
        self._template = environment.from_string(source)
        self.has_generation_blocks = "endgeneration" in source
        self.bos_id, self.pad_id = self._special("bos_token"), self._special("pad_token")
        self.eos_ids = self._eos_ids()

    def encode(self, messages: tuple[tuple[str, str], ...], *, loss_scope: str = "assistant") -> Tokens:
        """The whole conversation; `loss_scope` "all" counts every token but BOS."""
        text, spans = self._render(messages, add_generation_prompt=False)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = np.asarray(encoding.ids, np.int32)
        if loss_scope == "all":
            return Tokens(ids, (ids != self.bos_id).astype(np.uint8))
        mask = [any(a <= start and end <= b for a, b in spans) for start, end in encoding.offsets]
        return Tokens(ids, np.asarray(mask, np.uint8))

    def encode_prompt(self, messages: tuple[tuple[str, str], ...]) -> np.ndarray:
        """int32 ids of the conversation up to the last question, with the generation prompt."""
        text, _ = self._render(up_to_question(messages), add_generation_prompt=True)
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids) -> str:
        return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)

    def _render(self, messages, *, add_generation_prompt: bool) -> tuple[str, list[tuple[int, int]]]:
        turns = [{"role": role, "content": content} for role, content in messages]
        if any(char in turn["content"] for turn in turns for char in (START, END)):
            raise ContractError(f"a row holds U+E0F0 or U+E0F1, which the contract reserves: {turns[0]['content'][:40]!r}")
        specials = {key: value for key, value in self._config.items() if key.endswith("_token")}
        try:
            marked = self._template.render(messages=turns, add_generation_prompt=add_generation_prompt, **specials)
        except TemplateError as error:
            raise ContractError(f"{self.folder}: its chat template fails: {error}") from error
        return _unmark(marked)

    def _template_source(self) -> str:
        path = self.folder / "chat_template.jinja"
        source = path.read_text() if path.exists() else self._config.get("chat_template")
        if not source:
            raise ContractError(f"{self.folder}: no chat_template.jinja and no chat_template in tokenizer_config.json")
        return source

    def _need(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise ContractError(f"checkpoint {self.folder}: no {name} in it")
        return path

    def _special(self, key: str) -> int:
        token = self._config.get(key)
        token = token["content"] if isinstance(token, dict) else token
        number = self._tokenizer.token_to_id(token) if token else None
        if number is None:
            raise ContractError(f"{self.folder}: {key} = {token!r} has no id in tokenizer.json")
        return number

    def _eos_ids(self) -> tuple[int, ...]:
        """Ids that end a generation: generation_config.json's list, else the tokenizer's EOS."""
        path = self.folder / "generation_config.json"
        ids = json.loads(path.read_text()).get("eos_token_id") if path.exists() else None
        ids = self._special("eos_token") if ids is None else ids
        return tuple(ids) if isinstance(ids, list) else (ids,)


def up_to_question(messages: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Without the answer to the last question."""
    return messages[: max(i for i, (role, _) in enumerate(messages) if role != "assistant") + 1]


def _unmark(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """Text without marks, and the character spans [start, end) that lay between them."""
    text, spans = "", []
    for piece in marked.split(START):
        inside, mark, outside = piece.partition(END)
        if mark:
            spans.append((len(text), len(text) + len(inside)))
        text += inside + outside
    return text, spans
