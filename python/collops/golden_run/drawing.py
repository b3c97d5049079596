"""Draws wrong outputs of a run."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from collops.golden.compare.plot import DPI, error_figure, save_plot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from collops.golden.compare import Comparison
    from collops.golden.data.dtypes import Array
    from collops.golden.operators.output_layout import OutputLayout

# Pictures that a report keeps: each takes about half a second and 50 KB.
MOST_KEPT = 30


class Drawings:
    """Draws the wrong outputs that it is called with: the first into a file, others as bytes.

    Args:
        path: the file of the first wrong output; None: no file.
        keeps: whether pictures are returned, up to MOST_KEPT.
    """

    def __init__(self, path: Path | None, keeps: bool) -> None:
        self._path = path
        self._keeps = keeps
        self._left = MOST_KEPT if keeps else 0
        self.written = False
        self.is_full = False

    def __call__(
        self,
        got: Sequence[Array],
        expected: Sequence[Array],
        result: Comparison,
        layout: OutputLayout,
    ) -> bytes:
        """Draws an output; returns a PNG if it is to be kept, else nothing."""
        pattern = result.diagnosis
        title = pattern.kind if pattern.kind == "no pattern" else pattern.text
        names = [f"rank {rank}" for rank in range(len(expected))]
        what = (got, expected, result.masks, result.dtype)
        described: dict[str, Any] = {"layout": layout, "names": names, "title": title}
        if self._path is not None and not self.written:
            save_plot(self._path, *what, **described)
            self.written = True
        if self._left == 0:
            self.is_full = self._keeps
            return b""
        self._left -= 1
        picture = io.BytesIO()
        error_figure(*what, **described).savefig(picture, format="png", dpi=DPI)
        return picture.getvalue()
