"""The pictures of benchmarks: bars that are stacked from parts, and lines by size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from collops.bench.operator import Row
from collops.bench.shares import size_text
from collops.golden.compare.limits import robust_limits

# The colours of the parts, in their order, and of the rest of a call.
_COLORS = ("#4c78a8", "#bab0ac", "#f58518", "#e45756", "#b279a2")
_REST = "#54a24b"
_ACROSS = 3
_WIDTH, _BAR, _MARGIN = 6.2, 0.3, 1.0
_CUT = 4.0
_MARGIN_OF_X = 0.18
_ROOM_OF_Y = 1.6
_MOST_TICKS = 7
_ROW = 0.15  # inches of a bar with its value
# The y and the x of each line.
Line = tuple[Sequence[float], Sequence[float]]


def require_matplotlib(path: Path) -> None:
    """Raises ValueError unless matplotlib is installed and the name ends in .png, .svg or .pdf."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError(
            "--plot needs matplotlib: pip install 'collops[bench]' or matplotlib"
        ) from None


@dataclass
class Panel:
    """Lines by size, both axes logarithmic."""

    title: str
    x_name: str
    y_name: str
    lines: Mapping[str, Line]  # by label
    dashed: str = ""  # the label of a limit
    styles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of other lines
    marked: float | None = None  # where a line goes across, on a linear axis from 0 on


def save_panels(path: Path, panels: Sequence[Panel], across: int = _ACROSS) -> None:
    """Writes one picture of all panels."""
    panels_figure(panels, across).savefig(path, dpi=110)


def panels_figure(panels: Sequence[Panel], across: int = _ACROSS) -> Any:
    """The picture of panels with lines; those whose lines have one point each share a panel."""
    lined = [panel for panel in panels if panel.lines and not _is_of_one_point(panel)]
    alone: dict[str, list[Panel]] = {}
    for panel in filter(_is_of_one_point, panels):
        alone.setdefault(panel.y_name, []).append(panel)
    rows = [sum(1 + len(one.lines) for one in group) for group in alone.values()]
    height = max([4.0, *(_ROW * count for count in rows)])
    figure, axes = _figure(max(1, len(lined) + len(alone)), across, 5.4, height)
    for panel, axis in zip(lined, axes, strict=False):
        _draw_lines(axis, panel)
    for one, axis in zip(alone.values(), axes[len(lined) :], strict=False):
        _draw_points(axis, one)
    figure.tight_layout()
    return figure


def _is_of_one_point(panel: Panel) -> bool:
    """Whether each line of a panel has one point, all of them at the same x."""
    lines = [list(xs) for xs, _ in panel.lines.values()]
    return bool(lines) and len(lines[0]) == 1 and all(xs == lines[0] for xs in lines)


def _figure(panels: int, across: int, width: float, height: float, legend: float = 0.0) -> Any:
    """A figure and its panels, which have this width and height, below the room of a legend."""
    from matplotlib.figure import Figure

    across = min(across, panels)
    down = -(-panels // across)
    figure = Figure(figsize=(width * across, height * down + legend))
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[panels:]:
        axis.axis("off")
    return figure, axes[:panels]


def _style(panel: Panel, label: str) -> Mapping[str, Any]:
    limit = {"linestyle": "--", "color": "black"}
    return limit if label == panel.dashed else panel.styles.get(label, {"marker": "o"})


def _draw_points(axis: Any, panels: Sequence[Panel]) -> None:
    """The values as bars: under the title of each panel one for each line."""
    values = [ys[0] for panel in panels for _, ys in panel.lines.values()]
    end = longest_bar(values) * (1 + _MARGIN_OF_X)
    heads, names = 0, []
    for panel in panels:
        x = next(xs[0] for xs, _ in panel.lines.values())
        title = f"{panel.title}, {_x_text(panel, x)}" if x > 0 else panel.title
        axis.text(0, heads, f" {title}", va="center", fontsize=8)
        for y, (label, (_, [value])) in enumerate(panel.lines.items(), heads + 1):
            style = _style(panel, label)
            hatch = "//" if style.get("linestyle") == "--" else ""
            color = style.get("color", _COLORS[0])
            length = 0 if math.isnan(value) else min(value, end)
            axis.barh(y, length, 0.8, color=color, hatch=hatch, edgecolor="white")
            text, at, side = (f" {value:.3g}", length, "left")
            if value > end:
                text, at, side = (f"cut: {value:.3g} >> ", end, "right")
            axis.text(at, y, text, va="center", ha=side, fontsize=7)
            names.append((y, label))
        heads += 1 + len(panel.lines)
    if panels[0].marked is not None:
        axis.axvline(panels[0].marked, color="black", linewidth=0.8)
        end = max(end, 1.1 * panels[0].marked)
    axis.set_title("one size each", fontsize=9)
    axis.set_xlabel(panels[0].y_name, fontsize=8)
    axis.set_xlim(0, end)
    axis.set_yticks([y for y, _ in names], [label for _, label in names], fontsize=7)
    axis.set_ylim(heads - 0.4, -0.6)


def _x_text(panel: Panel, x: float) -> str:
    return size_text(int(x)) if panel.x_name == "bytes" else f"{x:g} {panel.x_name}"


def _draw_lines(axis: Any, panel: Panel) -> None:
    for label, (xs, ys) in panel.lines.items():
        axis.plot(xs, ys, label=label, **_style(panel, label))
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel(panel.x_name, fontsize=8)
    axis.set_ylabel(panel.y_name, fontsize=8)
    axis.grid(visible=True, alpha=0.3)
    sized = any(x > 0 for xs, _ in panel.lines.values() for x in xs)
    if sized:
        axis.set_xscale("log", base=2)
        sizes = sorted({x for xs, _ in panel.lines.values() for x in xs if x > 0})
        if panel.x_name == "bytes" and len(sizes) <= _MOST_TICKS:
            axis.set_xticks(sizes, [size_text(int(x)) for x in sizes], fontsize=8)
            axis.minorticks_off()
    given = [y for _, ys in panel.lines.values() for y in ys if 0 < y < math.inf]
    if panel.marked is not None:
        axis.axhline(panel.marked, color="black", linewidth=0.8)
        values = np.array([panel.marked, *given])
        axis.set_ylim(0, 1.1 * max(panel.marked, robust_limits(values)[1]))
        _mark_outliers(axis, list(panel.lines.values()), 0, axis.get_ylim()[1])
    elif sized and given:
        axis.set_yscale("log")
        fit_scale(axis, list(panel.lines.values()))
    if panel.lines:
        axis.legend(fontsize=7)


def fit_scale(axis: Any, lines: Sequence[Line]) -> None:
    """Limits a logarithmic y axis to the values but for outliers, which are marked at its edge."""
    values = np.array([y for _, ys in lines for y in ys if y > 0])
    if not values.size:
        return
    low, high = robust_limits(values)
    if low <= values.min() and high >= values.max():
        return
    low, high = low / _ROOM_OF_Y, high * _ROOM_OF_Y
    axis.set_ylim(low, high)
    _mark_outliers(axis, lines, low, high)


def _mark_outliers(axis: Any, lines: Sequence[Line], low: float, high: float) -> None:
    """Marks points beyond the scale at its edge, with their value."""
    for xs, ys in lines:
        for x, y in zip(xs, ys, strict=True):
            if y > high or 0 < y < low:
                edge, mark, align = (high, "^", "top") if y > high else (low, "v", "bottom")
                axis.plot([x], [edge], mark, color="black", clip_on=False, ms=6)
                axis.text(x, edge, f"  {y:.3g}", va=align, fontsize=7)


def save_bars(path: Path, titles: Mapping[str, str], points: Mapping[str, Sequence[Row]]) -> None:
    """Writes one picture with a panel for each point by its title, and in it a bar for each row.

    `titles` names the parts of a call, in the order of the stack.
    """
    from matplotlib.patches import Patch

    height = _BAR * max(map(len, points.values())) + _MARGIN
    figure, axes = _figure(len(points), _ACROSS, _WIDTH, height, legend=0.5)
    for axis, (title, rows) in zip(axes, points.items(), strict=True):
        draw_bars(axis, title, titles, rows)
    shown = drawn_parts(titles, [row for rows in points.values() for row in rows])
    handles = [Patch(color=_colors(titles)[part]) for part in shown]
    names = list(shown.values())
    figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    figure.savefig(path, dpi=110)


def parts_of(titles: Mapping[str, str], row: Row) -> dict[str, float]:
    """Milliseconds of each part, and the rest of the call."""
    parts = {name: ms for name, ms in row["parts_ms"].items() if name in titles}
    return {**parts, "rest": max(row["ms"] - sum(parts.values()), 0.0)}


def drawn_parts(titles: Mapping[str, str], rows: Sequence[Row]) -> dict[str, str]:
    """The titles of the parts that take time in a row, in their order."""
    taken = {name for row in rows for name, ms in parts_of(titles, row).items() if ms > 0}
    return {name: title for name, title in {**titles, "rest": "rest"}.items() if name in taken}


def longest_bar(times: Sequence[float]) -> float:
    """The longest bar that is drawn whole: of times that are all alike the largest.

    A time above _CUT times the upper quartile would make the other bars too short to compare.
    Times of 0, and those that are no numbers, have no length; without any other it is 1.
    """
    lengths = sorted(time for time in times if 0 < time < math.inf)
    if not lengths:
        return 1.0
    limit = _CUT * lengths[(len(lengths) - 1) * 3 // 4]
    return max(time for time in lengths if time <= limit)


def _colors(titles: Mapping[str, str]) -> dict[str, str]:
    return {**dict(zip(titles, _COLORS, strict=False)), "rest": _REST}


def draw_bars(axis: Any, title: str, titles: Mapping[str, str], rows: Sequence[Row]) -> None:
    """One panel: the first row on top; a bar that is too long is cut, and marked."""
    longest = longest_bar([row["ms"] for row in rows])
    end = longest * (1 + _MARGIN_OF_X)
    for y, row in enumerate(rows):
        left = 0.0
        parts = parts_of(titles, row)
        for name, color in _colors(titles).items():
            width = min(parts.get(name, 0.0), end - left)
            axis.barh(y, width, left=left, color=color, height=0.72)
            left += width
        if row["ms"] <= longest:
            axis.text(left, y, f" {row['ms']:.2f}", va="center", fontsize=7)
        else:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            words = f"cut: {row['ms']:.2f} >>"
            axis.text(end, y, words, va="center", ha="right", fontsize=7, bbox=box)
    axis.set_title(title, fontsize=9)
    axis.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    axis.invert_yaxis()
    axis.set_xlim(0, end)
    axis.set_xlabel("ms until the last rank is done, median", fontsize=7)
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
