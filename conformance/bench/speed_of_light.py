"""What no server can beat: the arithmetic and the memory traffic of a cell, on the peak figures of its devices."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from conformance.bench.cells import Cell
from conformance.bench.events import Record, whole
from conformance.bench.figures import figures_of
from conformance.bench.validity import Check
from conformance.contract.errors import ContractError
from conformance.contract.toml_records import read_record
from conformance.contract.topology import head_sizes, topology_of
from conformance.findings import Verdict

DEVICES = Path(__file__).with_name("devices.toml")
BFLOAT16_BYTES = 2
CAUSES = (
    "cached prefixes; dropped, truncated or shorter prompts; a first event without a token; tokens counted as chunks; speculative "
    "decoding; a smaller or quantised model; other devices than stated"
)


@dataclass(frozen=True, slots=True)
class Device:
    """One chip; dense bfloat16 FLOP/s and HBM bandwidth at their peak."""

    peak_flop_per_s: float
    hbm_bytes_per_s: float
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Machine:
    """So many chips of a device, all used by one server."""

    name: str
    device: Device
    chips: int

    @property
    def flop_per_s(self) -> float:
        return self.chips * self.device.peak_flop_per_s

    @property
    def bytes_per_s(self) -> float:
        return self.chips * self.device.hbm_bytes_per_s


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of some layers: bytes that a token adds, and after how many tokens the oldest is forgotten (None: never)."""

    bytes_per_token: float
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """`parameters`: those that every token is multiplied with; an embedding is only looked up. bfloat16 weights and cache."""

    parameters: float
    weight_bytes: float
    caches: tuple[Cache, ...] = ()

    def cache_bytes(self, context_tokens: float) -> float:
        """Read for one new token after so many."""
        return sum(cache.bytes_per_token * min(context_tokens, cache.window_tokens or context_tokens) for cache in self.caches)


    def served(self, settings: dict) -> "Model":
        """By a server with these settings: unless its cache is known to be bfloat16, it may have half the bytes (fp8)."""
        if settings.get("kv_dtype") in ("auto", "bfloat16"):
            return self
        return replace(self, caches=tuple(replace(cache, bytes_per_token=cache.bytes_per_token / 2) for cache in self.caches))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one cell: least TTFT and TPOT in ms, most requests/s."""

    ttft_ms: float
    tpot_ms: float
    requests_per_s: float


def read_machine(name: str, path: Path = DEVICES) -> Machine:
    """One of the file's machines, such as v6e-8."""
    tables = tomllib.loads(path.read_text())
    if name not in tables["machines"]:
        raise ContractError(f"machine {name!r} is not one of {', '.join(tables['machines'])} ({path.name})")
    entry = tables["machines"][name]
    device = read_record(Device, tables["devices"][entry["device"]], where=str(path), prefix=f"devices.{entry['device']}.")
    return Machine(name, device, entry["chips"])


def model_of(checkpoint: Path) -> Model:
    """From config.json. The embedding is read a row at a time; where it is the head too it is read whole for each new token."""
    config = json.loads((Path(checkpoint) / "config.json").read_text())
    text = config.get("text_config", config)
    topology = topology_of(text)
    sizes = {name: prod(shape) for name, shape in topology.tensors.items()}
    multiplied = sum(size for name, size in sizes.items() if len(topology.tensors[name]) == 2 and "embed_tokens" not in name)
    caches = Counter(_cache(text, layer.kind) for layer in topology.layers)
    summed = tuple(Cache(count * cache.bytes_per_token, cache.window_tokens) for cache, count in caches.items())
    return Model(multiplied, BFLOAT16_BYTES * sum(sizes.values()), summed)


def _cache(text: dict, kind: str) -> Cache:
    """Where K serves as V one of them is enough, whatever a server keeps: this is a least."""
    head, kv_heads, k_eq_v = head_sizes(text, kind)
    window = None if kind == "full_attention" else text["sliding_window"]
    return Cache(head * kv_heads * BFLOAT16_BYTES * (1 if k_eq_v else 2), window)


def bounds_of(machine: Machine, model: Model, cell: Cell, output_tokens: float) -> Bounds:
    """`output_tokens`: of a reply on average; attention's own arithmetic is left out, so these are generous."""
    context, flop = cell.input_tokens + output_tokens / 2, 2 * model.parameters
    ttft_s = max(flop * cell.input_tokens / machine.flop_per_s, model.weight_bytes / machine.bytes_per_s)
    tpot_s = max((model.weight_bytes + model.cache_bytes(context)) / machine.bytes_per_s, flop / machine.flop_per_s)
    together = int(cell.level) if cell.mode == "closed" else cell.requests
    step_s = (model.weight_bytes + together * model.cache_bytes(context)) / machine.bytes_per_s  # one token for each of them
    arithmetic_s = flop * (cell.input_tokens + output_tokens - 1) / machine.flop_per_s
    memory_s = step_s * (output_tokens - 1) / together
    return Bounds(1e3 * ttft_s, 1e3 * tpot_s, 1 / max(arithmetic_s, memory_s))


def speed_checks(machine: Machine | None, model: Model | None, cell: Cell, records: tuple[Record, ...]) -> Iterator[Check]:
    """The first token of the fastest reply, TPOT p50 (one reply's is too short when the client reads late), and the throughput."""
    good = whole(records)
    if machine is None or model is None or not good:
        missing = "no machine and model to compute it with" if machine is None or model is None else "no whole reply"
        yield Check("speed of light", Verdict.NOT_PROVEN, f"{missing} (--machine, --checkpoint)")
        return
    figures = figures_of(records)
    output_tokens = sum(record.usage_completion_tokens for record in good) / len(good)
    least = bounds_of(machine, model, cell, output_tokens)
    fastest_ttft_ms = min((record.first_token_ns - record.sent_ns) / 1e6 for record in good)
    yield bound_check("TTFT", fastest_ttft_ms, least.ttft_ms, "ms")
    if figures.tpot_ms.n:
        yield bound_check("TPOT p50", figures.tpot_ms.p50, least.tpot_ms, "ms")
    yield bound_check("throughput", figures.requests_per_s, least.requests_per_s, "requests/s", is_most=True)


def bound_check(name: str, measured: float, bound: float, unit: str, *, is_most: bool = False) -> Check:
    """IMPOSSIBLE when faster than the bound."""
    impossible = measured > bound if is_most else measured < bound
    said = f"{measured:.4g} {unit}, {'at most' if is_most else 'at least'} {bound:.4g} {unit} is possible"
    if impossible:
        return Check(f"speed of light, {name}", Verdict.FAIL, f"IMPOSSIBLE: {said}; usual causes: {CAUSES}")
    return Check(f"speed of light, {name}", Verdict.PASS, said)
