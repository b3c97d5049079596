"""Door, at which ranks that are threads wait until all have their memory."""

from __future__ import annotations

import threading


class Door:
    """Ranks that are threads of one process begin a call on a device together.

    A kernel of one rank waits for those of the others, and a driver may wait for all kernels of the
    process before it gives memory: so every rank has its tensors before any kernel runs.
    """

    def __init__(self) -> None:
        self._barrier: threading.Barrier | None = None

    def close(self, ranks: int) -> None:
        """From now on so many ranks have to come."""
        self._barrier = threading.Barrier(ranks)

    def enter(self) -> None:
        """Waits for the other ranks, or until one has opened the door for good."""
        if self._barrier is None:
            return
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            return

    def open(self) -> None:
        """A rank will not come: nobody waits any more in this call."""
        if self._barrier is not None:
            self._barrier.abort()
