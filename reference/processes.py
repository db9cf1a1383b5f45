"""Which of several processes this one is: `accelerate launch` and `torchrun` say it in the environment."""

import os


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_index() -> int:
    """0 is the process that writes."""
    return int(os.environ.get("RANK", "0"))
