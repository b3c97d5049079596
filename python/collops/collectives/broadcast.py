"""broadcast of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_bytes, as_tensor
from collops.collectives.plans import whole_int64
from collops.core import core

_NAME = "broadcast"
_OPERATION = "Broadcast"  # identifies the call among the ranks


class Broadcast(Method):
    """broadcast of one communicator."""

    def __call__(self, x: Any, root: int) -> Any:
        """Gives every rank the root's x, in place.

        ``x_r = x_root``, for every rank r

        Moves any element type of a fixed size, bit for bit.

        Args:
            x: [...] of one shape on every rank, contiguous and writable; any number of dims, also
                none. A numpy array or a torch tensor in the CPU's memory.
            root: the rank whose elements the others get, the same on every rank.

        Returns:
            `x`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: torch.distributed.broadcast; ncclBroadcast in place.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def tell(rank):
            ...     with collops.init() as comm:
            ...         return comm.broadcast(np.full(2, rank), root=1).tolist()
            >>> run_ranks(tell, 3)
            [[1, 1], [1, 1], [1, 1]]
        """
        try:
            root = whole_int64(_NAME, "root", root)
            data = as_tensor(_NAME, "x", x)
            element = self._level.element(data.dtype)
            if element.number is None:
                data = as_bytes(f"{_NAME}: x", data)
            key = root, element.name
            plan = self._plans.get(key) or self._plans.add(
                key, core().plan_broadcast(*key, self._level.size)
            )
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.run(plan, data)
        return x
