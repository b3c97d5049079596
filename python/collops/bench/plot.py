"""Draws the times: a bar per variant, stacked from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collops.bench.operator import Operator, Row
from collops.bench.tables import full_title
from collops.golden.compare.limits import robust_limits

# The colours of an operator's parts, in their order, and of the rest of a call.
_COLORS = ("#4c78a8", "#bab0ac", "#f58518", "#e45756", "#b279a2")
_REST = "#54a24b"
_ACROSS = 3
_WIDTH, _BAR, _MARGIN = 6.2, 0.3, 1.0
_CUT = 4.0
_MARGIN_OF_X = 0.18
_ROOM_OF_Y = 1.6


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
            "--plot needs matplotlib: pip install 'collops[plot]' or matplotlib"
        ) from None


def save_plot(operator: Operator, path: Path, points: list[list[Row]]) -> None:
    """Writes one picture with a panel for each point of each launch."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    drawn = [[row for row in rows if row["column"] not in operator.unplotted] for rows in points]
    across = min(_ACROSS, len(drawn))
    down = -(-len(drawn) // across)
    most = max(map(len, drawn))
    figure = Figure(figsize=(_WIDTH * across, (_BAR * most + _MARGIN) * down + 0.5))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, rows in zip(panels, drawn, strict=False):
        _draw(panel, operator, rows)
    for panel in panels[len(drawn) :]:
        panel.axis("off")
    shown = drawn_parts(operator, [row for rows in drawn for row in rows])
    handles = [Patch(color=_colors(operator)[part]) for part in shown]
    names = list(shown.values())
    figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    figure.savefig(path, dpi=110)


def parts_of(operator: Operator, row: Row) -> dict[str, float]:
    """Milliseconds of each part, and the rest of the call."""
    parts = {name: ms for name, ms in row["parts_ms"].items() if name in operator.parts}
    return {**parts, "rest": max(row["ms"] - sum(parts.values()), 0.0)}


def drawn_parts(operator: Operator, rows: list[Row]) -> dict[str, str]:
    """The titles of the parts that take time in a row, in their order."""
    titles = {**operator.parts, "rest": "rest"}
    taken = {name for row in rows for name, ms in parts_of(operator, row).items() if ms > 0}
    return {name: title for name, title in titles.items() if name in taken}


def longest_bar(times: list[float]) -> float:
    """The longest bar that is drawn whole: of times that are all alike the largest.

    A time above _CUT times the upper quartile would make the other bars too short to compare.

    Example:
        >>> longest_bar([1.0, 2.0, 3.0, 2.5]), longest_bar([1.0, 2.0, 3.0, 2.5, 60.0])
        (3.0, 3.0)
    """
    limit = _CUT * sorted(times)[(len(times) - 1) * 3 // 4]
    return max(time for time in times if time <= limit)


def _colors(operator: Operator) -> dict[str, str]:
    return {**dict(zip(operator.parts, _COLORS, strict=False)), "rest": _REST}


def _draw(panel: Any, operator: Operator, rows: list[Row]) -> None:
    """One panel: the first variant on top; a bar that is too long is cut, and marked."""
    longest = longest_bar([row["ms"] for row in rows])
    end = longest * (1 + _MARGIN_OF_X)
    for y, row in enumerate(rows):
        left = 0.0
        parts = parts_of(operator, row)
        for name, color in _colors(operator).items():
            width = min(parts.get(name, 0.0), end - left)
            panel.barh(y, width, left=left, color=color, height=0.72)
            left += width
        if row["ms"] <= longest:
            panel.text(left, y, f" {row['ms']:.2f}", va="center", fontsize=7)
        else:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            words = f"cut: {row['ms']:.2f} >>"
            panel.text(end, y, words, va="center", ha="right", fontsize=7, bbox=box)
    panel.set_title(full_title(operator, rows[0]), fontsize=9)
    panel.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    panel.invert_yaxis()
    panel.set_xlim(0, end)
    panel.set_xlabel("ms until the last rank is done, median", fontsize=7)
    panel.tick_params(axis="x", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)


def fit_scale(panel: Any, lines: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
    """Limits a logarithmic y axis to the values but for outliers, which are marked at its edge.

    Args:
        panel: the axes on which the lines are drawn.
        lines: the x and the y of each line.
    """
    values = np.array([y for _, ys in lines for y in ys if y > 0])
    if not values.size:
        return
    low, high = robust_limits(values)
    if low <= values.min() and high >= values.max():
        return
    low, high = low / _ROOM_OF_Y, high * _ROOM_OF_Y
    panel.set_ylim(low, high)
    for xs, ys in lines:
        for x, y in zip(xs, ys, strict=True):
            if y > high or 0 < y < low:
                edge, mark, align = (high, "^", "top") if y > high else (low, "v", "bottom")
                panel.plot([x], [edge], mark, color="black", clip_on=False, ms=6)
                panel.text(x, edge, f"  {y:.3g}", va=align, fontsize=7)
