"""Levels of a certificate: on what a parity was shown, and which rungs must have passed."""

from dataclasses import dataclass

from conformance.contract.schema import RUNGS


@dataclass(frozen=True, slots=True)
class Level:
    """`rungs` are required: each has at least one finding, and all of its findings are PASS."""

    name: str
    shown_on: str
    proves: str
    rungs: tuple[str, ...]


# No certificate of a tiny model needs them: the server and the simulator are other people's programs, which a machine may lack, and
# what they add to the rungs before is the claimed recipe's. L2 needs both. Where they were recorded and fail, the run fails.
_TINY = tuple(rung for rung in RUNGS if rung not in ("serving", "evaluation"))
# Of DESIGN.md's list for the claimed recipe: gradients are first-step sketches, the trajectory is that of the timed launches.
_CLAIMED = (
    "tokens", "batches", "weights", "adapters", "logits", "gradients", "trajectory", "merge", "generation", "serving",
    "evaluation",
)  # fmt: skip

L0 = Level("L0", "a tiny model on CPU", "the port computes what the recipe computes, up to rounding", _TINY)
L1 = Level("L1", "a tiny model on the claimed devices", "the same holds in the devices' own arithmetic", _TINY)
L2 = Level("L2", "the claimed recipe on the claimed devices", "the runs that were timed did the same work", _CLAIMED)
LEVELS = {level.name: level for level in (L0, L1, L2)}


def level_for(reference_device: str, port_device: str, *, large: bool) -> Level:
    """The level that a pair of recordings can reach: GPU against TPU for L1 and L2; anything else shows arithmetic only.

    `large`: the bundles are of a real checkpoint's size, not of a tiny model's.
    """
    claimed = device_kind(reference_device) == "gpu" and device_kind(port_device) == "tpu"
    if not claimed:
        return L0
    return L2 if large else L1


def device_kind(device: str) -> str:
    """One of "gpu", "tpu", "cpu", for a device as its framework names it ("NVIDIA H100 80GB HBM3", "TPU v5p", "cpu")."""
    name = device.lower()
    if "tpu" in name:
        return "tpu"
    return "gpu" if any(word in name for word in ("cuda", "nvidia", "gpu", "rocm")) else "cpu"
