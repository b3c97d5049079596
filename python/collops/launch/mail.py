"""Pickled reports over pipes, read in pieces, so that an incomplete report does not block."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_HEAD = struct.Struct("!Q")
_MOST = 1 << 16


def post(descriptor: int, content: object) -> None:
    """Writes one pickled object; waits until the reader has taken the bytes.

    Raises:
        OSError: the reader has closed the pipe.
    """
    write(descriptor, packed(content))


def packed(content: object) -> bytes:
    """One object as the bytes that post() writes."""
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(data)) + data


def write(descriptor: int, data: bytes) -> None:
    """Writes all the bytes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Inbox:
    """The bytes of an object that have arrived so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = bytearray()

    def read(self) -> Any:
        """Reads the bytes that are there; returns the object once it is complete, else None.

        Blocks only if the descriptor is not readable.

        Raises:
            EOFError: the other end was closed.
            OSError: it cannot be read.
        """
        piece = os.read(self._descriptor, _MOST)
        if not piece:
            raise EOFError
        self._data += piece
        if len(self._data) < _HEAD.size:
            return None
        [length] = _HEAD.unpack_from(self._data)
        if len(self._data) < _HEAD.size + length:
            return None
        content = pickle.loads(memoryview(self._data)[_HEAD.size :])
        self._data = bytearray()
        return content
