"""Figures of two sweeps: everything that was measured is drawn, hollow where it is saturated, pale where it is not proven."""

import matplotlib
import pytest

from conformance.bench import plots
from conformance.bench.plots import draw
from conformance.bench.prices import read_prices, usd_per_million
from conformance.bench.synthetic_sweep import Scene, write_sweep


def test_cost_is_price_over_rate():
    """$21.52 an hour at 1,400 output tokens/s: $4.27 a million, as published."""
    assert usd_per_million(read_prices()["v6e-8"].usd_per_hour, 1400) == pytest.approx(4.27, abs=5e-3)
    assert usd_per_million(read_prices()["H100-2"].usd_per_hour, 728) == pytest.approx(8.44, abs=5e-3)


def test_both_sides_are_in_each_figure(tmp_path, monkeypatch):
    """A saturated cell is hollow; one of two starts is pale; a side without a price has no cost."""
    points = []
    drawn = plots._point

    def note(axes, x, value, colour, marker, summary):
        points.append((colour, summary.saturated, bool(summary.reasons)))
        drawn(axes, x, value, colour, marker, summary)

    monkeypatch.setattr(plots, "_point", note)
    sides = [
        write_sweep(tmp_path / "a", Scene()),
        write_sweep(tmp_path / "b", Scene((50.0, 51.0), busy_ms=75.0, machine="H100-2")),
    ]
    written = draw(sides, tmp_path / "plots")
    names = {f"{name}.{kind}" for name in ("by-rate", "by-concurrency", "by-length", "pareto") for kind in ("svg", "png")}
    assert {path.name for path in written} == names
    assert all(path.stat().st_size > 1000 for path in written)
    text = (tmp_path / "plots" / "by-rate.svg").read_text()
    assert "A v6e-8, 32 in, 8 out, fixed" in text
    assert "B H100-2, 32 in, 8 out, fixed" in text
    blue, orange = plots.COLOURS
    assert {point for point in points if point[0] == blue} == {(blue, False, False)}
    assert {point for point in points if point[0] == orange} == {(orange, True, True), (orange, False, True)}


def test_equal_input_gives_an_equal_figure(tmp_path):
    """No date, no random ids. Without a price, the cost is said not to be known."""
    side = plots._side(write_sweep(tmp_path / "a", Scene(machine="")), {}, plots.COLOURS[0], "")
    with matplotlib.rc_context(plots.STYLE | plots.GRID):
        for name in ("one", "two"):
            plots._save(plots._panels([side], "open", "rate"), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert "not known" in (tmp_path / "one.svg").read_text()
