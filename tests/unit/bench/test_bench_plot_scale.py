"""Plots of the bench: an outlier flattens no panel, and the legend names what is drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from collops.bench.operators import load
from collops.bench.plot import (
    Panel,
    draw_bars,
    drawn_parts,
    fit_scale,
    longest_bar,
    panels_figure,
)

LINEAR: Any = load("linear_parallel")


def row(label: str, ms: float, **parts_ms: float) -> dict[str, Any]:
    """A row of a point."""
    return {"label": label, "ms": ms, "parts_ms": parts_ms}


def axes() -> Any:
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().subplots()


def test_a_bar_that_is_too_long_is_cut_and_has_its_value() -> None:
    panel = axes()
    rows = [row(str(i), 1.0 + i / 10, gemm=1.0) for i in range(5)] + [row("slow", 400.0)]
    draw_bars(panel, "title", LINEAR.parts, rows)
    assert panel.get_xlim()[1] < 2.0
    assert any("cut: 400.00 >>" in text.get_text() for text in panel.texts)
    assert max(bar.get_x() + bar.get_width() for bar in panel.patches) <= panel.get_xlim()[1]


def test_bars_of_similar_length_are_whole() -> None:
    assert longest_bar([1.0, 3.9]) == 3.9
    assert longest_bar([0.1, 4.0, 4.0, 8.0]) == 8.0
    panel = axes()
    rows = [row("a", 1.0, gather=0.5, gemm=0.0), row("b", 3.0)]
    draw_bars(panel, "title", LINEAR.parts, rows)
    assert not any("cut" in text.get_text() for text in panel.texts)
    assert list(drawn_parts(LINEAR.parts, rows)) == ["gather", "rest"]  # in the legend


def test_a_point_far_away_does_not_stretch_a_logarithmic_axis() -> None:
    panel = axes()
    xs, ys = [1, 2, 4, 8, 16], [1.0, 1.1, 900000.0, 1.2, 1.3]
    panel.plot(xs, ys)
    panel.set_yscale("log")
    fit_scale(panel, [(xs, ys)])
    assert panel.get_ylim()[1] < 10
    assert [text.get_text().strip() for text in panel.texts] == ["9e+05"]


def test_lines_without_outliers_keep_their_axis() -> None:
    panel = axes()
    panel.plot([1, 2], [1.0, 5.0])
    before = panel.get_ylim()
    fit_scale(panel, [([1, 2], [1.0, 5.0]), ([1], [0.0])])
    fit_scale(panel, [])
    assert panel.get_ylim() == before
    assert len(panel.texts) == 0


def test_panels_of_one_point_are_bars_of_one_panel_with_their_values() -> None:
    pytest.importorskip("matplotlib")
    dashed = {"window": {"linestyle": "--"}}
    lines = {"plain": ([16384], [0.5]), "window": ([16384], [0.25])}
    one = Panel("a", "bytes", "times", lines, styles=dashed, marked=1.0)
    sized = Panel("b", "bytes", "times", {"plain": ([64, 1 << 20], [1.0, 2.0])})
    lines = {"plain": ([64], [90.0]), "window": ([64], [0.75])}
    other = Panel("c", "bytes", "times", lines, styles=dashed)
    nothing = Panel("d", "bytes", "GB/s", {})
    lined, bars = panels_figure([one, sized, other, nothing]).axes[:2]
    assert [tick.get_text() for tick in lined.get_xticklabels()] == ["64", "1m"]
    assert [text.get_text().strip() for text in bars.texts] == [
        *("a, 16k", "0.5", "0.25"),
        *("c, 64", "cut: 90 >>", "0.75"),
    ]
    names = [tick.get_text() for tick in bars.get_yticklabels()]
    assert names == ["plain", "window", "plain", "window"]
    assert [bool(bar.get_hatch()) for bar in bars.patches] == [False, True, False, True]
    assert bars.get_xlabel() == "times"
    assert any(list(line.get_xdata()) == [1.0, 1.0] for line in bars.lines)
    assert bars.get_xlim()[1] < 2


def test_lines_of_one_point_at_different_sizes_are_no_bars_of_one_size() -> None:
    pytest.importorskip("matplotlib")
    panel = Panel("a", "bytes", "times", {"plain": ([64], [1.0]), "window": ([1024], [2.0])})
    [lined] = panels_figure([panel]).axes
    assert [tick.get_text() for tick in lined.get_xticklabels()] == ["64", "1k"]
    assert [list(line.get_xdata()) for line in lined.lines] == [[64], [1024]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("marked", [None, 1.0])
@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((math.nan,), ["nan"]),
        ((0.0,), ["0"]),
        ((0.0, 0.0, 0.0, 0.0, 3.0), ["0", "0", "0", "0", "3"]),
        ((math.nan, 0.0, 2.0), ["nan", "0", "2"]),
    ],
)
def test_values_that_are_0_or_were_not_measured(
    values: tuple[float, ...], shown: list[str], marked: float | None, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    one = {str(i): ([64], [value]) for i, value in enumerate(values)}
    sized = {str(i): ([64, 128], [value, value]) for i, value in enumerate(values)}
    panels = [Panel("a", "bytes", "times", lines, marked=marked) for lines in (one, sized)]
    figure = panels_figure(panels)
    bars = figure.axes[1]
    assert [text.get_text().strip() for text in bars.texts] == ["a, 64", *shown]
    assert bars.get_xlim()[1] > 0
    figure.savefig(tmp_path / "x.png")
