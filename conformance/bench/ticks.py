"""Ticks of logarithmic axes in plain numbers, and names beside them as plain text."""

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import NullLocator

MOST_TICKS, MOST_CHARACTERS = 8, 36
TICKS = (
    (1, 1.1, 1.2, 1.3, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 9),
    (1, 1.5, 2, 3, 5),
    (1, 2, 5),
    (1,),
)  # of a decade


def plain(text: str) -> str:
    """No formula, whatever is in it, and no longer than an axis has room for."""
    return (text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…").replace("$", r"\$")


def log_ticks(axis: Axis) -> None:
    """In plain numbers, as many as there is room for; of very many decades they are matplotlib's own."""
    low, high = sorted(axis.get_view_interval())
    choices = ([tick for tick in _ticks(steps) if low <= tick <= high] for steps in TICKS)
    ticks = next((ticks for ticks in choices if len(ticks) <= MOST_TICKS), None)
    if ticks is None:
        return
    if len(ticks) < 2:  # both ends lie between two of them
        ticks = np.linspace(low, high, 6)[1:-1]
    axis.set_ticks(ticks, [f"{tick:.4g}" if tick < 1000 else f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def _ticks(steps: tuple[float, ...]) -> list[float]:
    return [step * 10.0**power for power in range(-20, 21) for step in steps]
