"""Draws wrong outputs of a run."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from collops.golden.compare.plot import DPI, error_figure

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
        kept = self._left > 0
        self.is_full = self._keeps and not kept
        if not kept and (self._path is None or self.written):
            return b""
        pattern = result.diagnosis
        figure = error_figure(
            got,
            expected,
            result.masks,
            result.dtype,
            layout=layout,
            names=[f"rank {rank}" for rank in range(len(expected))],
            title=pattern.kind if pattern.kind == "no pattern" else pattern.text,
        )
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=DPI)
        if self._path is not None and not self.written:
            self._path.write_bytes(picture.getvalue())
            self.written = True
        self._left -= kept
        return picture.getvalue() if kept else b""
