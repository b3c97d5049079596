"""What the ranks of a job write, line by line, with the rank before each line."""

from __future__ import annotations

from typing import IO

# A line this long is passed on before its end has come.
_MOST = 1 << 16


class Prefixed:
    """Passes bytes on to `out`, whatever they are, with `prefix` before every line.

    A line is passed on when it is whole, so lines of several ranks do not mix.
    """

    def __init__(self, prefix: bytes, out: IO[bytes]) -> None:
        self._prefix = prefix
        self._out = out
        self._line = b""

    def write(self, data: bytes) -> None:
        """Takes what has come; nothing means that no more will."""
        if not data:
            self.finish()
            return
        *whole, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _MOST:
            whole.append(self._line)
            self._line = b""
        if whole:
            self._pass_on(b"".join(self._prefix + line + b"\n" for line in whole))

    def finish(self) -> None:
        """Passes on a last line that has no end."""
        if self._line:
            self._pass_on(self._prefix + self._line + b"\n")
            self._line = b""

    def _pass_on(self, lines: bytes) -> None:
        self._out.write(lines)
        self._out.flush()
