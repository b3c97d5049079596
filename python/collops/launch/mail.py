"""Reports on their way, in pieces: half a report holds up nobody who waits for several."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_HEAD = struct.Struct("!Q")
_MOST = 1 << 16


def post(descriptor: int, content: object) -> None:
    """Writes one thing, as fast as it is taken at the other end.

    Raises:
        OSError: the other end was closed.
    """
    write(descriptor, packed(content))


def packed(content: object) -> bytes:
    """One thing as post() writes it."""
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(data)) + data


def write(descriptor: int, data: bytes) -> None:
    """Writes all the bytes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Inbox:
    """What has come so far of what is posted at the other end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = bytearray()

    def read(self) -> Any:
        """Takes what is there: the thing that was posted if it is whole now, otherwise None.

        It waits only where the descriptor is not readable.

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
