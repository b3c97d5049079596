"""Draws README's picture: python bench/readme.py FOLDER writes it there. Needs matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Colours that people tell apart who see fewer; the last two differ in brightness, too.
_RANKS = ("#0072b2", "#d55e00", "#009e73", "#b0508f")
_ROWS = (3, 0, 2, 1)
_STYLE = {
    "svg.hashsalt": "collops",
    "font.size": 10,
    "savefig.facecolor": "white",  # opaque: as readable on a dark page as on a light one
}


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


def main(folder: str) -> int:
    """Writes the picture."""
    from matplotlib import rc_context

    path = Path(folder) / "uneven_batch.svg"
    with rc_context(_STYLE):
        batch_figure().savefig(path, metadata={"Date": None})
    print(path)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1]))
