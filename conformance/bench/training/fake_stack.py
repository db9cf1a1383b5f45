"""A stack for tests: `python fake_stack.py PLANNED [--fail N | --hang N | --short | --device NAME | --garbage] [--at-launch N] ...`

It writes the lines of the file PLANNED with times of its own, and what it was told goes wrong does. The standard library alone: a
launch takes a twentieth of a second.
"""

import argparse
import json
import sys
import time
from pathlib import Path


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("planned", type=Path)
    parser.add_argument("--fail", type=int, default=-1)  # after so many steps
    parser.add_argument("--hang", type=int, default=-1)
    parser.add_argument("--short", action="store_true")  # one step too few
    parser.add_argument("--device", default="fake")
    parser.add_argument("--garbage", action="store_true")  # a line that is no step
    parser.add_argument("--at-launch", type=int)  # else every launch does it
    for name in ("--recipe", "--out"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--steps", "--seed"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


def main() -> int:
    asked = options()
    is_it = asked.at_launch is None or f"launch-{asked.at_launch}." in asked.out.name
    lines = [json.loads(line) for line in asked.planned.read_text().splitlines()][: asked.steps - (is_it and asked.short)]
    (asked.out / "profile").mkdir()  # left behind, as a profiler does
    with (asked.out / "steps.jsonl").open("x") as file:
        end_ns = time.monotonic_ns()
        for number, line in enumerate(lines):
            if is_it and number == asked.fail:
                print("RuntimeError: out of memory", file=sys.stderr)
                return 1
            while is_it and number == asked.hang:
                time.sleep(0.01)
            time.sleep(0.002)
            start_ns, end_ns = end_ns, time.monotonic_ns()
            file.write(json.dumps(line | {"start_ns": start_ns, "end_ns": end_ns}) + "\n")
            file.flush()
        if is_it and asked.garbage:
            file.write('{"step": "one"}\n')
    facts = {
        "stack": "fake", "platform": "cpu", "device": asked.device if is_it else "fake", "chips": 1, "code_sha256": "f" * 64,
        "versions": {"fake": "1"}, "compile_s": None, "peak_memory_bytes": 10**6, "memory_of": "RSS",
    }  # fmt: skip
    (asked.out / "stack.json").write_text(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
