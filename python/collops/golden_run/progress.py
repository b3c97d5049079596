"""A line at the bottom of a terminal that says how far a run is."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_EVERY_S = 0.1


class Progress:
    """Draws on a terminal, and nothing elsewhere."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._shown = self._stream.isatty() and total > 0
        self._drawn_at = 0.0
        self._begin = time.monotonic()

    def show(self, done: int, failed: int) -> None:
        """Draws how many cases are done, but not more often than the eye can follow."""
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
        """Removes the line, so that something else can be printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
