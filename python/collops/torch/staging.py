"""Memory of a group in which the tensors of a list lie one after the other."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from collops.errors import Error

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

# Below it malloc has memory that was touched before; above, every call would fault in new pages.
_LEAST_BYTES = 128 << 10


class Staging:
    """Two windows, one for what a call reads and one for what it writes, used again and again.

    Each grows to less than twice its largest use. Calls that need more at a time get new memory.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._comm = communicator
        # A window or None, which is still to be made. A deque takes windows back from any thread,
        # also from the garbage collector.
        self._spare: deque[Any] = deque([None, None])

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised elements, flat; the window is spare again once no tensor refers to it."""
        used = elements * dtype.itemsize
        if used < _LEAST_BYTES or not self._spare:
            return torch.empty(elements, dtype=dtype)
        window = self._spare.pop()
        if window is None or window.size < used:
            window = None  # unmapped before the larger one is made
            try:
                window = self._comm.empty(1 << (used - 1).bit_length(), np.uint8)
            except Error:  # no memory to share, or the group has ended, which the call will say
                self._spare.append(None)
                return torch.empty(elements, dtype=dtype)
        # The storage of the tensor holds this view, and nothing else does.
        view = window[:used]
        weakref.finalize(view, self._spare.append, window).atexit = False
        return torch.from_numpy(view).view(dtype)
