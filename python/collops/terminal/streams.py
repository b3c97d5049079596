"""Standard output and error of a command, wherever they lead: closed, full, or read by nobody."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_STANDARD = (0, 1, 2)
_NOBODY_READS = (errno.EPIPE, errno.EIO)  # EIO: a terminal that has gone


class OutputError(BaseException):
    """Standard output cannot be written: no command takes it for an error of a file of its own.

    Attributes:
        unread: whether that is because nobody reads it any more.
        reason: why, in words.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.unread = error.errno in _NOBODY_READS
        self.reason = error.strerror


class _Output(io.FileIO):
    """Standard output, whose failure ends the command."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class _PassedOn(_Output):
    """Standard output of a command that goes on where nobody reads it."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OutputError as failed:
            if not failed.unread:
                raise
            return memoryview(data).nbytes


class _Messages(io.FileIO):
    """Standard error: what cannot be written is dropped."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextlib.contextmanager
def standard_streams(*, passes_on: bool) -> Iterator[None]:
    """Standard output and error, to which a command prints without a thought of where they lead.

    A stream that is closed from the start drops what is printed. A character that the encoding
    lacks is escaped. Nothing is left to be written at the end of the program.

    Args:
        passes_on: whether the command goes on where nobody reads its output.

    Raises:
        OutputError: standard output cannot be written.
    """
    _open_closed()
    before = sys.stdout, sys.stderr
    sys.stdout = _guarded(sys.stdout, _PassedOn if passes_on else _Output)
    sys.stderr = _guarded(sys.stderr, _Messages)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError:
        _drop(sys.stdout)
        raise
    finally:
        sys.stderr.flush()  # a stream that something still holds is not flushed as it is replaced
        sys.stdout, sys.stderr = before


def _drop(stream: TextIO) -> None:
    """Drops what a stream holds and cannot write."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())
    stream.flush()


def _open_closed() -> None:
    """Opens what is closed, so that no file of the program gets its number."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  until the program ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _guarded(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    """The same stream on a file of that kind; one that is no file of the system stays as it is."""
    try:
        number = stream.fileno()
        stream.flush()
    except (OSError, ValueError):
        return stream
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "wb", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
