"""Draws the first wrong output of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.golden.compare.plot import save_plot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from collops.golden.compare import Comparison
    from collops.golden.data.dtypes import Array
    from collops.golden.operators.output_layout import OutputLayout
    from collops.golden_run.verdict import Draw


def first_wrong_output(path: Path) -> Draw:
    """A function that draws the first output that it gets and ignores later ones."""
    drawn = False

    def draw(
        got: Sequence[Array], expected: Sequence[Array], result: Comparison, layout: OutputLayout
    ) -> None:
        nonlocal drawn
        if drawn:
            return
        drawn = True
        pattern = result.diagnosis
        title = pattern.kind if pattern.kind == "no pattern" else pattern.text
        names = [f"rank {rank}" for rank in range(len(expected))]
        what = (got, expected, result.masks, result.dtype)
        save_plot(path, *what, layout=layout, names=names, title=title)

    return draw
