"""Draws time and bandwidth by size: a line for each variant, and the limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collops.bench.collectives.report import LATENCY, LIMIT
from collops.bench.operator import Row
from collops.bench.plot import fit_scale

_WIDTH, _HEIGHT = 6.4, 4.2
_US = "us, median"
_GB_S = "algbw, GB/s"


def save_plot(path: Path, points: list[list[Row]]) -> None:
    """Writes one picture: for each launch, element type and skew a row of two panels."""
    from matplotlib.figure import Figure

    groups: dict[str, list[Row]] = {}
    for rows in points:
        mpi = f", {rows[0]['mpi']}" if rows[0]["mpi"] else ""
        name = f"{rows[0]['bench']}, {rows[0]['placement']}{mpi}, {rows[0]['dtype']}"
        groups.setdefault(f"{name}, {rows[0]['skew']}", []).extend(rows)
    figure = Figure(figsize=(2 * _WIDTH, _HEIGHT * len(groups)))
    panels = figure.subplots(len(groups), 2, squeeze=False)
    for (title, rows), (times, rates) in zip(groups.items(), panels, strict=True):
        _draw(times, title, _US, rows, lambda row: row["ms"] * 1e3)
        # A barrier has no bytes, and LATENCY no rate.
        moved = [row for row in rows if row["bytes"] and row["column"] != LATENCY]
        _draw(rates, title, _GB_S, moved, lambda row: row["algbw_gb_s"])
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def series(
    rows: list[Row], value: Callable[[Row], float]
) -> dict[str, tuple[list[int], list[float]]]:
    """For each variant's label, the sizes and the values in the order of the sizes."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for row in sorted(rows, key=lambda row: int(row["bytes"])):
        sizes, values = found.setdefault(row["label"], ([], []))
        sizes.append(row["bytes"])
        values.append(value(row))
    return found


def _draw(
    panel: Any, title: str, name: str, rows: list[Row], value: Callable[[Row], float]
) -> None:
    lines = series(rows, value)
    for label, (sizes, values) in lines.items():
        style = {"linestyle": "--", "color": "black"} if label == LIMIT else {"marker": "o"}
        panel.plot(sizes, values, label=label, **style)
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("bytes", fontsize=8)
    panel.set_ylabel(name, fontsize=8)
    if any(row["bytes"] for row in rows):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        fit_scale(panel, list(lines.values()))
    panel.grid(visible=True, alpha=0.3)
    if rows:
        panel.legend(fontsize=7)
