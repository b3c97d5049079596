"""Draws README's pictures: python bench/readme.py FOLDER writes two .svg files there.

The plot has the figures of docs/torch.md, which `collops bench torch` measured. Needs matplotlib.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch.md"
# Colours that people tell apart who see fewer; the last two differ in brightness, too.
_RANKS = ("#0072b2", "#d55e00", "#009e73", "#b0508f")
_PADDED, _UNEVEN = "#9a9a9a", "#0072b2"
_ROWS = (3, 0, 2, 1)
_STYLE = {
    "svg.hashsalt": "collops",
    "font.size": 10,
    "savefig.facecolor": "white",  # opaque: as readable on a dark page as on a light one
}


class Point(NamedTuple):
    """A line of the page's table of a padded and an uneven batch."""

    size: int
    padded_us: int
    uneven_us: int
    ratio: str


def points(page: str) -> list[Point]:
    """The lines of the table, by size."""
    table = page.split("| padded us | uneven us | padded / uneven |\n")[1].split("\n\n")[0]
    lines = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", table, re.MULTILINE)
    return [Point(int(size), int(padded), int(uneven), r) for size, padded, uneven, r in lines]


def batch_figure() -> Any:
    """The rows of four ranks, and what each of them receives: padded blocks, and the rows alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 2.3))
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set(xlim=(0, 21), ylim=(0, 5.75), xticks=[], yticks=[])
    panel.axis("off")
    panel.text(0.3, 5.1, "the rows of each rank", weight="bold")
    for rank, rows in enumerate(_ROWS):
        y = 3.8 - 1.1 * rank
        panel.text(0.3, y + 0.4, f"rank {rank}", va="center")
        _draw_blocks(panel, 2.3, y, [(rank, rows, 0)])
        if rows == 0:
            panel.text(2.3, y + 0.4, "none", va="center", color="#606060")
    padded = [(rank, rows, max(_ROWS) - rows) for rank, rows in enumerate(_ROWS)]
    total, most = sum(_ROWS), len(_ROWS) * max(_ROWS)
    panel.annotate("", (7.6, 2.6), (6.2, 2.6), arrowprops={"arrowstyle": "->", "lw": 1.5})
    words = f"padded to the longest block: {most} rows arrive, {most - total} of them empty"
    panel.text(8.2, 4.65, words)
    _draw_blocks(panel, 8.2, 3.45, padded)
    panel.text(8.2, 2.05, f"all_gatherv: {total} rows arrive", weight="bold")
    _draw_blocks(panel, 8.2, 0.85, [(rank, rows, 0) for rank, rows in enumerate(_ROWS)])
    return figure


def _draw_blocks(panel: Any, x: float, y: float, blocks: list[tuple[int, int, int]]) -> None:
    """Squares in one line: of each (rank, rows, empty) its rows, then its empty places."""
    from matplotlib.patches import Rectangle

    for rank, rows, empty in blocks:
        for place in range(rows + empty):
            filled = {"facecolor": _RANKS[rank], "edgecolor": "white"}
            hatched = {"facecolor": "white", "edgecolor": "#9a9a9a", "hatch": "////"}
            panel.add_patch(Rectangle((x, y), 0.9, 0.85, **(filled if place < rows else hatched)))
            if place < rows:
                where = {"ha": "center", "va": "center", "color": "white", "fontsize": 9}
                panel.text(x + 0.45, y + 0.41, str(rank), **where)
            x += 1.0


def time_figure(page: str) -> Any:
    """The time of a step with a padded and with an uneven batch, and the ratio of both."""
    from matplotlib.figure import Figure

    measured = points(page)
    figure = Figure(figsize=(8.4, 3.0))
    panel = figure.subplots()
    for place, point in enumerate(measured):
        for offset, us, color in (
            (-0.2, point.padded_us, _PADDED),
            (0.2, point.uneven_us, _UNEVEN),
        ):
            panel.bar(place + offset, us, width=0.38, color=color)
            panel.text(place + offset, us * 1.1, f"{us:,}", ha="center", va="bottom", fontsize=9)
        words = {"ha": "center", "va": "bottom", "weight": "bold"}
        panel.text(place, point.padded_us * 2.6, f"{point.ratio} times", **words)
    panel.set_yscale("log")
    panel.set_ylim(10, 10 * max(point.padded_us for point in measured))
    panel.set_xticks(range(len(measured)), [_size(point.size) for point in measured])
    panel.set_xlabel("tokens on rank 0, which has four times those of rank 1")
    panel.set_ylabel("microseconds")
    panel.spines[["top", "right"]].set_visible(False)
    names = ("padded to the most tokens", "all_gatherv, reduce_scatterv")
    panel.legend(panel.patches[:2], names, loc="upper left", frameon=False)
    figure.tight_layout()
    return figure


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def main(folder: str) -> int:
    """Writes both pictures."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        pictures = {"uneven_batch": batch_figure(), "uneven_time": time_figure(PAGE.read_text())}
        for name, figure in pictures.items():
            path = Path(folder) / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            print(path)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1]))
