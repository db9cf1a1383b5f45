"""One long-lived process that plants what it is told and records the parts that it is asked for: a line of JSON in, a line out.

    (start)                                                                  -> {"parts": [all that it records, in order]}
    {"plant": {a mutant's fields} or "a fault's id" or null, "whole": true}  -> {}
    {"record": ["tokens", ...], "to": "folder of a partial bundle"}          -> {} or {"part": ..., "error": ...}
    {"remove": true}                                                         -> {}

It ends when its input does. Everything that a library prints goes to stderr.
"""

import argparse
import dataclasses
import json
import os
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from pathlib import Path

from conformance.contract.bundle_writer import BundleWriter
from conformance.contract.faults import Fault, chosen, read_faults
from conformance.contract.mutants import Mutant
from conformance.contract.progress import silent
from conformance.contract.recipe import Recipe, load_recipe
from tpu_impl.environment import environment, prepare_process
from tpu_impl.faults import recording
from tpu_impl.faults.mutating import mutant_planted
from tpu_impl.faults.parts import PARTS, TRAINING
from tpu_impl.faults.peers import FLOAT32_MERGE, record_float32_merge
from tpu_impl.faults.plants import planted
from tpu_impl.session import Session

# What is planted in these changes no model and no compiled program: they share the clean session's.
SHARED = ("tpu_impl.data", "tpu_impl.merge")
# Faults of these may change the model. The ladder sees them before it needs one, so that they share a start there; a peer runs it.
MODELS = ("weights", "adapters")
RECORDED = PARTS | {FLOAT32_MERGE: record_float32_merge}


class Server:
    def __init__(self, recipe: Recipe):
        self._clean, self._stack, self._session = Session(recipe, silent), ExitStack(), None
        self._fault: Fault | None = None

    def __enter__(self) -> "Server":
        self._clean.__enter__()
        self._clean.main_run  # noqa: B018  (made before anything is planted)
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()
        self._clean.__exit__()

    def answer(self, asked: dict) -> dict:
        if "plant" in asked:
            return self._plant(asked["plant"], asked["whole"])
        if "record" in asked:
            return self._record(asked["record"], Path(asked["to"]))
        self._stack.close()
        return {}

    def _plant(self, what: dict | str | None, whole: bool) -> dict:
        """`whole`: the main run is part of what the plant changes; otherwise it is the clean session's. None: a control."""
        fault, plant = _planting(what, whole)
        self._stack.enter_context(recording.forgotten(fault))
        self._stack.enter_context(plant)
        self._fault = fault
        self._begin()
        return {}

    def _begin(self) -> None:
        self._session = self._stack.enter_context(Session(self._clean.recipe, silent))
        recording.share(self._session, self._clean, self._fault)

    def _record(self, parts: list[str], to: Path) -> dict:
        """A part may end in any error: that too is how a stack shows what is planted. Then there is no bundle, and what comes after
        begins anew: the error may have left the session's model in the middle of something."""
        try:
            with BundleWriter(to, stack="port", recipe=self._clean.recipe, plan=self._clean.plan) as writer:
                for part in parts:
                    RECORDED[part](self._session, writer)
                writer.manifest(**environment())
        except Exception as error:
            self._clean._attached = cache(self._clean._attach)
            self._begin()
            return {"part": part, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        return {}


def _planting(what: dict | str | None, whole: bool) -> tuple[Fault, AbstractContextManager]:
    """What is shared with the clean session follows from a fault's start and records alone."""
    records = TRAINING if whole else ("merge loud",)
    if isinstance(what, str):
        (fault,) = chosen(read_faults(), (what,))
        return dataclasses.replace(fault, records=records, start="own" if fault.rung in MODELS else fault.start), planted(fault)
    shared = what is not None and what["module"] in SHARED
    fault = Fault("", "mutation run", "", "", records, "", "", start="shared" if shared else "own")
    return fault, mutant_planted(Mutant(**what)) if what else nullcontext()


def main() -> None:
    top = argparse.ArgumentParser(prog="python -m tpu_impl.faults.serving", description="Plants and records what stdin asks for.")
    top.add_argument("--recipe", type=Path, required=True, help="recipe file (TOML)")
    recipe = load_recipe(top.parse_args().recipe)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    prepare_process()
    with Server(recipe) as server:
        print(json.dumps({"parts": list(RECORDED)}), file=answers, flush=True)  # ready
        for line in sys.stdin:
            print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
