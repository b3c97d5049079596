"""reduce of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, resolve_out
from collops.collectives.plans import check_root
from collops.core import core

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel

_NAME = "reduce"
_OPERATION = "Reduce"  # by which the ranks know the call


class Reduce:
    """reduce of one communicator: a reduction of which one rank gets all rows.

    One thread at a time, as the communicator.
    """

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def __call__(self, x: Any, op: str, root: int) -> Any:
        """Reduces over the ranks and leaves the result on one of them.

        ``out = x_0 op x_1 op ... op x_{P-1}`` on the root, in rank order

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"`` or ``"avg"`` (floating types only).
            root: the rank that gets the result, the same on every rank.

        Returns:
            [...] in new memory of x's kind (numpy for ``__dlpack__``) on the root; None on the
            other ranks.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on root, shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Reduce; ncclReduce.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def add(rank):
            ...     with collops.init() as comm:
            ...         total = comm.reduce(np.array([rank, 1.5]), root=2)
            ...         return None if total is None else total.tolist()
            >>> run_ranks(add, 3)
            [None, None, [3.0, 4.5]]
        """
        level = self._level
        try:
            root = check_root(_NAME, root, level.size)
            number = level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            level.check_reducible(_NAME, x)
            plan = core().plan_scatter(
                _NAME,
                _OPERATION,
                level.size,
                ([math.prod(x.shape)], 0, 1, ""),
                share="root",
                root=root,
                op=number,
            )
            shape = tuple(x.shape) if level.rank == root else (0,)
            out = resolve_out(_NAME, "out", x, shape, None)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(plan, x, out)
        return out if level.rank == root else None
