"""Whether this machine has the accelerator that a benchmark is of."""

from pathlib import Path

DEVICES = {"tpu": ("accel[0-9]*", "vfio/[0-9]*"), "gpu": ("nvidia[0-9]*",)}


def missing_device(platform: str, devices: Path = Path("/dev")) -> str:
    """Why nothing can be measured here; empty: it can."""
    if any(path for pattern in DEVICES[platform] for path in devices.glob(pattern)):
        return ""
    return f"NOT PROVEN: no {platform.upper()} here ({', '.join(f'{devices}/{pattern}' for pattern in DEVICES[platform])})"
