"""Draws the times: a bar per variant, stacked from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collops.bench.operator import Operator, Row
from collops.bench.tables import full_title

# The colours of an operator's parts, in their order, and of the rest of a call.
_COLORS = ("#4c78a8", "#bab0ac", "#f58518", "#e45756", "#b279a2")
_REST = "#54a24b"
_ACROSS = 3
_WIDTH, _BAR, _MARGIN = 6.2, 0.3, 1.0


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
    names = [*operator.parts.values(), "rest"]
    handles = [Patch(color=color) for color in _colors(operator).values()]
    figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    figure.savefig(path, dpi=110)


def parts_of(operator: Operator, row: Row) -> dict[str, float]:
    """Milliseconds of each part, and the rest of the call."""
    parts = {name: ms for name, ms in row["parts_ms"].items() if name in operator.parts}
    return {**parts, "rest": max(row["ms"] - sum(parts.values()), 0.0)}


def _colors(operator: Operator) -> dict[str, str]:
    return {**dict(zip(operator.parts, _COLORS, strict=False)), "rest": _REST}


def _draw(panel: Any, operator: Operator, rows: list[Row]) -> None:
    """One panel: the first variant on top."""
    for y, row in enumerate(rows):
        left = 0.0
        parts = parts_of(operator, row)
        for name, color in _colors(operator).items():
            width = parts.get(name, 0.0)
            panel.barh(y, width, left=left, color=color, height=0.72)
            left += width
        panel.text(left, y, f" {row['ms']:.2f}", va="center", fontsize=7)
    panel.set_title(full_title(operator, rows[0]), fontsize=9)
    panel.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    panel.invert_yaxis()
    panel.margins(x=0.12)
    panel.set_xlabel("ms until the last rank is done, median", fontsize=7)
    panel.tick_params(axis="x", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
