"""A line at the bottom of a terminal that shows the progress of a run."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_EVERY_S = 0.1


class Progress:
    """Draws the progress line if standard error is a terminal."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._shown = self._stream.isatty() and total > 0
        self._drawn_at = 0.0
        self._begin = time.monotonic()

    def show(self, done: int, failed: int) -> None:
        """Draws the number of finished cases, a few times per second at most."""
        now = time.monotonic()
        if not self._shown or (now - self._drawn_at < _EVERY_S and done < self._total):
            return
        self._drawn_at = now
        bar = ("#" * (_WIDTH * done // self._total)).ljust(_WIDTH, ".")
        rate = done / max(now - self._begin, 1e-3)
        line = f"[{bar}] {done}/{self._total}, {failed} failed, {rate:.0f}/s"
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()

    def clear(self) -> None:
        """Removes the line, so that other text can be printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
