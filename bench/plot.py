"""Draws runs of one machine: time of collops / time of the fastest MPI, by size.

    python bench/plot.py FILE.png RUN.json ...

A panel for each call, a line for each place of the cores and each kind of memory. Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from collops.golden.compare.limits import robust_limits

import ratios
import summary

_ACROSS = 4
_WIDTH, _HEIGHT = 3.6, 2.9
_COLORS = {"sibling": "#54a24b", "near": "#4c78a8", "far": "#e45756", "one core": "#b279a2"}
_STYLES = {ratios.PLAIN: "-", ratios.WINDOW: "--"}
_LEAST_ROUNDS = 2  # behind a point; fewer are noise
_ROOM = 1.1  # above the largest ratio that is no outlier
Table = dict[tuple[int, str], ratios.Cell]
Lines = dict[tuple[str, str], tuple[list[int], list[float]]]


def lines_of(table: Table) -> Lines:
    """By place and kind of memory: the sizes, and collops's time / the fastest MPI's."""
    found: Lines = {}
    for (size, place), cell in sorted(table.items(), key=lambda entry: entry[0][0]):
        mpi = cell.mpi()
        if place not in _COLORS or not mpi or cell.rounds() < _LEAST_ROUNDS:
            continue
        for way in _STYLES:
            own = cell.of(way)
            if own is not None:
                sizes, values = found.setdefault((place, way), ([], []))
                sizes.append(size)
                values.append(own / min(mpi.values()))
    return found


def figure_of(points: list[ratios.Record]) -> Any:
    """The picture, in which every panel has the same scales."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter

    drawn = {case: lines_of(table) for case, table in ratios.cells(points).items()}
    drawn = {case: lines for case, lines in drawn.items() if lines}
    if not drawn:
        raise ValueError("no call has a point of collops and one of an MPI in the same place")
    measured = sorted(
        {size for lines in drawn.values() for sizes, _ in lines.values() for size in sizes}
    )
    across = min(_ACROSS, len(drawn))
    down = -(-len(drawn) // across)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down + 0.4))
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, ((operator, dtype, shares), lines) in zip(panels, drawn.items(), strict=False):
        for (place, way), (sizes, values) in lines.items():
            style = {"color": _COLORS[place], "linestyle": _STYLES[way], "marker": "."}
            panel.plot(sizes, values, label=f"{way}, {place} cores", **style)
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set_title(f"{operator} {dtype}, {shares}", fontsize=9)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(measured))
        panel.xaxis.set_major_formatter(FuncFormatter(_tick))
        panel.tick_params(labelbottom=True, labelsize=6)
        panel.grid(visible=True, alpha=0.3)
    for panel in panels[len(drawn) :]:
        panel.axis("off")
    panels[0].set_ylim(0, _top(list(drawn.values())))
    for panel, lines in zip(panels, drawn.values(), strict=False):
        _mark_outliers(panel, lines)
    handles = {
        label: handle
        for panel in panels[: len(drawn)]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="upper center", ncols=4, frameon=False)
    figure.supylabel("time / time of the fastest MPI", fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / figure.get_figheight()))
    return figure


def _top(drawn: list[Lines]) -> float:
    """The end of the scale, which has the line of the MPI and which outliers do not stretch."""
    values = [value for lines in drawn for _, line in lines.values() for value in line]
    return _ROOM * max(1.0, robust_limits(np.array(values))[1])


def _mark_outliers(panel: Any, lines: Lines) -> None:
    """Marks points above the scale at its edge, with their ratio."""
    top = panel.get_ylim()[1]
    for (place, _), line in lines.items():
        for size, value in zip(*line, strict=True):
            if value > top:
                panel.plot([size], [top], "^", color=_COLORS[place], clip_on=False, markersize=6)
                panel.text(size, top, f"  {value:.3g}", va="top", fontsize=7)


def _tick(size: float, _: int) -> str:
    return ratios.size_text(int(size))


def main(picture: str, *runs: str) -> int:
    """Draws the runs' points into one picture; 1 if there is nothing to draw."""
    try:
        figure = figure_of(summary.points_of(map(Path, runs)))
    except ValueError as problem:
        print(f"{', '.join(runs)}: {problem}", file=sys.stderr)
        return 1
    figure.savefig(picture, dpi=70)
    print(picture)
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(*sys.argv[1:]))
