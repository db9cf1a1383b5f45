"""Text files that are whole or as they were: written beside their name and renamed."""

import os
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """UTF-8. A kill at any moment leaves the file that was there before, or none."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    return partial.rename(path)
