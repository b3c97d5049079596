"""Draws the times by size: a panel for each call, a line for each backend and way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collops.bench.plot import fit_scale
from collops.bench.torch.request import TRAINING

_ACROSS = 3
_COLORS = {"collops": "#4c78a8", "gloo": "#f58518"}
_STYLES = {
    **{"sync": "-", "async": "--", "functional": ":", "padded": "--", "uneven": "-"},
    **{"batch-1": "-", "batch-8": "--"},
}


def save_plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one picture of all rows; both axes are logarithmic."""
    from matplotlib.figure import Figure

    calls = list(dict.fromkeys(row["call"] for row in rows))
    across = min(_ACROSS, len(calls))
    down = -(-len(calls) // across)
    figure = Figure(figsize=(4.6 * across, 3.4 * down))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, call in zip(panels, calls, strict=False):
        _draw(panel, [row for row in rows if row["call"] == call])
        panel.set_title(call, fontsize=9)
    for panel in panels[len(calls) :]:
        panel.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _draw(panel: Any, rows: list[dict[str, Any]]) -> None:
    lines = []
    for way, style in _STYLES.items():
        points = [row for row in rows if row["way"] == way]
        sizes = [max(row["bytes"], 1) for row in points]
        for backend, color in _COLORS.items():
            if points:
                times = [row[f"{backend}_us"] for row in points]
                lines.append((sizes, times))
                label, filled = f"{backend}, {way}", "full" if style == "-" else "none"
                panel.plot(
                    sizes,
                    times,
                    style,
                    color=color,
                    label=label,
                    marker="o",
                    ms=4,
                    fillstyle=filled,
                )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    fit_scale(panel, lines)
    trained = rows[0]["call"] in TRAINING
    panel.set_xlabel("bytes of parameters" if trained else "bytes of a rank's input", fontsize=7)
    panel.set_ylabel("us", fontsize=7)
    panel.legend(fontsize=6, frameon=False)
