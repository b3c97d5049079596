"""Windows of a group, each reused once no tensor refers to it."""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from collops.errors import Error
from collops.torch.graph_breaks import break_graphs

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_PAGE = 4096  # bytes; a window has whole pages anyway
# Below it malloc has memory that was touched before; above, every call would fault in new pages.
_LEAST_SCRATCH_BYTES = 128 << 10


@break_graphs
class WindowPool:
    """Memory of one group that its ranks read in place, given out as tensors.

    A window goes back to the pool when the last tensor on it is gone, views and the tensors of
    calls under way included: these hold the tensor's storage, and the storage holds the window.

    Attributes:
        made: how many windows the pool has made.
        num_bytes: their bytes together.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> import collops.torch
        >>> from collops.testing import run_ranks
        >>> def reuse(rank, path):
        ...     dist.init_process_group(
        ...         "collops", init_method=f"file://{path}", rank=rank, world_size=2
        ...     )
        ...     pool = dist.group.WORLD.windows
        ...     for _ in range(3):
        ...         x = pool.empty(1000, torch.float32)
        ...         dist.all_reduce(x.fill_(rank))
        ...         del x
        ...     dist.destroy_process_group()
        ...     return pool.made, pool.num_bytes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(reuse, 2, f"{folder}/store")
        [(1, 4096), (1, 4096)]
    """

    def __init__(self, communicator: Communicator) -> None:
        self._comm = communicator
        self.made = 0
        self.num_bytes = 0
        # By bytes. A deque takes windows back from any thread, also in the middle of empty(), where
        # the garbage collector may run: no lock could be taken there.
        self._spare: defaultdict[int, deque[Any]] = defaultdict(deque)
        # For what a call reads and what it writes; None is still to be made.
        self._scratch: deque[Any] = deque([None, None])

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised elements on a window of at most one page more.

        Args:
            elements: how many.
            dtype: their type.

        Returns:
            A flat tensor, on a window of the pool if one of this size is spare, else on a new one.

        Raises:
            Error: there is not enough memory.

        Source of the semantics: torch.empty.
        """
        used = elements * dtype.itemsize
        if used == 0:
            return torch.empty(elements, dtype=dtype)
        num_bytes = -(-used // _PAGE) * _PAGE
        spare = self._spare[num_bytes]
        try:
            window = spare.pop()
        except IndexError:
            window = self._comm.empty(num_bytes, np.uint8)
            self.made += 1
            self.num_bytes += num_bytes
        return _on_window(window, used, dtype, spare)

    def scratch(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised elements for a call that lays the tensors of a list one after the other.

        Two windows are used again and again, each of less than twice its largest use; small memory
        and what is needed beside them is new, and on no window.
        """
        used = elements * dtype.itemsize
        if used < _LEAST_SCRATCH_BYTES or not self._scratch:
            return torch.empty(elements, dtype=dtype)
        window = self._scratch.pop()
        if window is None or window.size < used:
            window = None  # unmapped before the larger one is made
            try:
                window = self._comm.empty(1 << (used - 1).bit_length(), np.uint8)
            except Error:  # no memory to share, or the group has ended, which the call will say
                self._scratch.append(None)
                return torch.empty(elements, dtype=dtype)
        return _on_window(window, used, dtype, self._scratch)


def _on_window(window: Any, used: int, dtype: torch.dtype, spare: deque[Any]) -> torch.Tensor:
    """A flat tensor on a window, which is spare again once no tensor refers to it."""
    # The storage of the tensor holds this view, and nothing else does.
    view = window[:used]
    weakref.finalize(view, spare.append, window).atexit = False
    return torch.from_numpy(view).view(dtype)
