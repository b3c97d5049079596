"""Draws where the time goes: a bar per column, stacked from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collops.bench.operators.linear_parallel.report import Row, points_of
from collops.bench.tables import title

# Part -> how the legend calls it, and its color; in the order in which they are stacked.
PARTS = {
    "gather": ("gather", "#4c78a8"),
    "gemm": ("GEMM", "#bab0ac"),
    "scatter": ("scatter", "#f58518"),
    "reduce": ("reduce", "#e45756"),
    "exposed": ("communication that shows", "#b279a2"),
    "rest": ("rest", "#54a24b"),
}
_COLUMNS = 3
_WIDTH, _BAR, _MARGIN = 6.2, 0.3, 1.0


def require_matplotlib(path: Path) -> None:
    """Raises ValueError unless a plot can be drawn and has a name that says so."""
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


def save_plot(path: Path, rows: list[Row]) -> None:
    """Writes one picture with a panel for each point of each launch."""
    from matplotlib.figure import Figure

    points = points_of([row for row in rows if row["column"] != "peak"])
    across = min(_COLUMNS, len(points))
    down = -(-len(points) // across)
    most = max(len(point) for point in points)
    figure = Figure(figsize=(_WIDTH * across, (_BAR * most + _MARGIN) * down + 0.5))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, point in zip(panels, points, strict=False):
        _draw(panel, point)
    for panel in panels[len(points) :]:
        panel.axis("off")
    names = [name for name, _ in PARTS.values()]
    handles = [_patch(color) for _, color in PARTS.values()]
    figure.legend(handles, names, loc="upper center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    figure.savefig(path, dpi=110)


def _patch(color: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=color)


def parts_of(row: Row) -> dict[str, float]:
    """Milliseconds of each part, and what is left of the whole."""
    parts = {name: ms for name, ms in row["parts_ms"].items() if name in PARTS}
    rest = row["ms"] - sum(parts.values())
    return {**parts, "rest": max(rest, 0.0)}


def _draw(panel: Any, point: list[Row]) -> None:
    """One panel: the first column on top."""
    labels = [row["label"] for row in point]
    for y, row in enumerate(point):
        left = 0.0
        parts = parts_of(row)
        for name, (_, color) in PARTS.items():
            width = parts.get(name, 0.0)
            panel.barh(y, width, left=left, color=color, height=0.72)
            left += width
        panel.text(left, y, f" {row['ms']:.2f}", va="center", fontsize=7)
    first = point[0]
    panel.set_title(title(first) + (f", {first['mpi']}" if first["mpi"] else ""), fontsize=9)
    panel.set_yticks(range(len(labels)), labels, fontsize=7)
    panel.invert_yaxis()
    panel.margins(x=0.12)
    panel.set_xlabel("ms until the last rank is done, median", fontsize=7)
    panel.tick_params(axis="x", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
