"""Everything that a report can show, on disk, made by hand on a recorded pair: what `parity package` is given. For tests."""

import dataclasses
from pathlib import Path

from conformance.bench.training.flops import step_flop
from conformance.gate.evidence import Given
from conformance.gate.proof import Files, Proof
from conformance.gate.synthetic import COST, LEDGER, PEAK, PRICES, TIME, TTFT, Stage

CLAIMS = {
    "training time": TIME, "training cost": COST, "TTFT at 10/s": TTFT, "peak throughput": PEAK,
    "pass@1": {"metric": "pass_at_1", "stated": "0.9", "kind": "at_least", "rungs": ["evaluation"]},
}  # fmt: skip
NUMBERS = """
[[number]]
name = "hours"
value = "5.39"
unit = "h"
source = "a table"
[[number]]
name = "halves"
value = "10"
unit = "h"
source = "a table"
[[sum]]
about = "half of it"
left = "hours * 2"
must = "equal"
right = "halves"
source = "by hand"
"""


def write_scene(folder: Path, files: Files, proof: Proof, **stage) -> tuple[Given, Path]:
    """(what the gate is given, the claims file); `stage`: what is other than honest in the measurements."""
    Stage(folder, [proof], step_flop(proof.plan), claim=TIME | {"metric": "total_cost"}, **stage).judge_all()  # which needs both jobs
    measurements = tuple(sorted(path for path in folder.iterdir() if path.is_dir()))
    claims = _write(folder / "claims.toml", NUMBERS + "".join(_claim(name, values) for name, values in CLAIMS.items()))
    prices = "".join(f"[{name}]\n{_lines(dataclasses.asdict(price))}" for name, price in PRICES.items())
    tuning = _write(folder / "tuning.toml", "".join(_ledger()))
    return Given((files,), measurements, (), _write(folder / "prices.toml", prices), tuning), claims


def _claim(name: str, values: dict) -> str:
    sides = {"numerator": "reference", "denominator": "port", "source": "here", "levels": ["L0"]}
    return f"[[claim]]\n{_lines(sides | {'name': name} | values)}"


def _ledger():
    for job, sides in dataclasses.asdict(LEDGER).items():
        for side, about in sides.items():
            tried = about.pop("tried")
            yield f"[{job}.{side}]\n{_lines(about)}"
            yield from (f"[[{job}.{side}.tried]]\n{_lines(one)}" for one in tried)


def _lines(values: dict) -> str:
    return "".join(f"{name} = {value!r}\n".replace("'", '"') for name, value in values.items())


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
