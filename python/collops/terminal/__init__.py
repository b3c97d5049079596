"""What a command shows on a terminal alone: colours, and a line of progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

_COLORS: Mapping[str, str] = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}
_WIDTH = 30
_EVERY_S = 0.1


def has_colors(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and NO_COLOR does not forbid them."""
    forbidden = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not forbidden


def colored(text: str, color: str, stream: TextIO | None = None) -> str:
    """The text in a colour (red, green, yellow, bold) where the stream shows colours.

    Args:
        text: the text.
        color: one of the names above.
        stream: where it will be printed; None: standard output.
    """
    shown = has_colors(sys.stdout if stream is None else stream)
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if shown else text


class Progress:
    """A line at the bottom of a terminal that shows how far a command is.

    Nothing is drawn unless the stream is a terminal.

    Args:
        total: the number of steps.
        stream: where the line is drawn; None: standard error.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._shown = self._stream.isatty() and total > 0
        self._drawn_at = 0.0
        self._begin = time.monotonic()

    def show(self, done: int, text: str = "") -> None:
        """Draws the number of finished steps and a text, a few times per second at most."""
        now = time.monotonic()
        if not self._shown or (now - self._drawn_at < _EVERY_S and 0 < done < self._total):
            return
        self._drawn_at = now
        bar = ("#" * (_WIDTH * done // self._total)).ljust(_WIDTH, ".")
        line = f"[{bar}] {done}/{self._total}" + (f", {text}" if text else "")
        width = self._columns() - 1
        self._stream.write(f"\r{line[:width]}\x1b[K")
        self._stream.flush()

    def rate(self, done: int) -> float:
        """Steps per second since this object was made."""
        return done / max(time.monotonic() - self._begin, 1e-3)

    def clear(self) -> None:
        """Removes the line, so that other text can be printed."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _columns(self) -> int:
        """Columns of the terminal; a longer line would not be removed."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80
