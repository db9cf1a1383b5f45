"""Records the rung *serving*: what a stack's merged checkpoint answers through a server, and what wrong ones do."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from conformance.contract.bundle import Bundle
from conformance.contract.bundle_writer import RungWriter
from conformance.contract.choices import END, FOLDERS
from conformance.contract.plan import Plan
from conformance.contract.probes import prompt_messages
from conformance.contract.progress import Progress, timed
from conformance.contract.serving.api import Api, Reply, padded
from conformance.contract.serving.identity import ask_probes, check_weights, probe_logprobs, real_probes
from conformance.contract.serving.manifest import flat
from conformance.contract.serving.served import Served
from conformance.contract.serving.settings import ADAPTER_NAME

RUNG = "serving"
ADAPTER, MERGED = FOLDERS["trained"]
Start = Callable[[Path, Path | None], AbstractContextManager[Served]]  # of a checkpoint, with an adapter beside it or without


def record_serving(bundle: Bundle, plan: Plan, start: Start, progress: Progress, no_controls: str = "") -> None:
    """Adds `serving/` to `bundle`. `no_controls`: why the base and unmerged adapters are not served too; empty: they are."""
    with RungWriter(bundle, RUNG, plan) as writer:
        if no_controls:
            writer.partial(no_controls)
        with start_merged(bundle, plan, start) as up, timed(progress, "answers of the merged checkpoint"):
            check_weights(bundle, up.manifest["weights_sha256"])
            for part in PARTS.values():
                part(writer, up, bundle, plan)
        if not no_controls:
            with start(plan.recipe.checkpoint_dir, bundle.folder(ADAPTER)) as up, timed(progress, "answers of the controls"):
                _write_server(writer, "controls", up.manifest)
                _write_answers(writer, plan, "control.base", *_together(up.api, plan))
                _write_answers(writer, plan, "control.adapter", *_together(up.api.named(ADAPTER_NAME), plan))


@contextmanager
def start_merged(bundle: Bundle, plan: Plan, start: Start) -> Iterator[Served]:
    """The server that the rung is about."""
    with start(bundle.folder(MERGED), None) as up:
        yield up


def record_absence(bundle: Bundle, plan: Plan, reason: str) -> None:
    """Says in the bundle why nothing was served."""
    with RungWriter(bundle, RUNG, plan) as writer:
        writer.not_recorded(reason)


def _alone(api: Api, plan: Plan) -> tuple[list[Reply], list[Reply]]:
    """(replies to the prompts, to the probes), one request after the other."""
    return [api.complete(prompt, plan.max_new_tokens) for prompt in plan.prompts], [api.complete(ids, 1) for ids in real_probes(plan)]


def _together(api: Api, plan: Plan) -> tuple[list[Reply], list[Reply]]:
    return api.together(lambda prompt: api.complete(prompt, plan.max_new_tokens), plan.prompts), ask_probes(api, plan)


def _write_answers(writer: RungWriter, plan: Plan, of: str, replies: list[Reply], probed: list[Reply]) -> None:
    width = plan.max_new_tokens
    writer.array(f"{of}/ids", padded([reply.ids for reply in replies], width, END, np.int32))
    writer.array(f"{of}/logprobs", padded([reply.logprobs for reply in replies], width, 0, np.float32))
    writer.array(f"{of}/probe_logprobs", probe_logprobs(probed, plan))
    for prompt, (sent, reply) in enumerate(zip(plan.prompts, replies, strict=True)):
        writer.line(
            "reply", of=of, prompt=prompt, sent_tokens=len(sent), prompt_tokens=reply.prompt_tokens,
            same_prompt_ids=reply.prompt_ids == sent.tolist(), completion_tokens=reply.completion_tokens,
            finish_reason=reply.finish_reason,
        )  # fmt: skip


def _write_forced(writer: RungWriter, api: Api, plan: Plan, ids_GK: np.ndarray) -> None:
    """What the server would have chosen, and what the stack's own ids weigh there, after each of the stack's own ids."""
    written = [ids[ids != END] for ids in ids_GK]
    whole = [np.concatenate(pair) for pair in zip(plan.prompts, written, strict=True)]
    replies = api.together(lambda ids: api.complete(ids, 1), whole)
    tails = [slice(len(reply.prompt_argmax) - len(ids), None) for reply, ids in zip(replies, written, strict=True)]
    argmax = [reply.prompt_argmax[tail] for reply, tail in zip(replies, tails, strict=True)]
    logprobs = [reply.prompt_logprobs[tail] for reply, tail in zip(replies, tails, strict=True)]
    writer.array("forced/argmax", padded(argmax, ids_GK.shape[1], END, np.int32))
    writer.array("forced/logprobs", padded(logprobs, ids_GK.shape[1], 0, np.float32))


def _write_chat(writer: RungWriter, api: Api, plan: Plan) -> None:
    """Which ids the server makes of the prompts' conversations, by both of its ways."""
    for prompt, messages in enumerate(prompt_messages(plan)):
        writer.line("chat", path="chat", prompt=prompt, ids=api.chat_ids(messages))
        writer.line("chat", path="tokenize", prompt=prompt, ids=api.tokenized(messages))


def _write_server(writer: RungWriter, serves: str, manifest: dict) -> None:
    for setting, value in flat(manifest).items():
        writer.line("server", serves=serves, setting=setting, value=value)
    for file, digest in manifest["weights_sha256"].items():
        writer.line("weights", serves=serves, file=file, sha256=digest)


# What is recorded of the merged checkpoint, by names under which a part can be recorded alone: (writer, server, bundle, plan).
PARTS: dict[str, Callable[[RungWriter, Served, Bundle, Plan], None]] = {
    "serving server": lambda writer, up, bundle, plan: _write_server(writer, "merged", up.manifest),
    "serving alone": lambda writer, up, bundle, plan: _write_answers(writer, plan, "alone", *_alone(up.api, plan)),
    "serving together": lambda writer, up, bundle, plan: _write_answers(writer, plan, "together", *_together(up.api, plan)),
    "serving forced": lambda writer, up, bundle, plan: _write_forced(
        writer, up.api, plan, np.asarray(bundle.array("generation", "f32/ids"))
    ),
    "serving chat": lambda writer, up, bundle, plan: _write_chat(writer, up.api, plan),
}
