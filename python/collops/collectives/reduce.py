"""reduce of the plain level: allocates the result and calls the core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, resolve_out
from collops.collectives.plans import whole_int64
from collops.core import core

if TYPE_CHECKING:
    from collops.tensor_types import ReduceOp

_NAME = "reduce"
_OPERATION = "Reduce"  # identifies the call among the ranks


class Reduce(Method):
    """reduce of one communicator: a reduction of which one rank gets all rows."""

    def __call__(self, x: Any, op: ReduceOp, root: int, out: Any) -> Any:
        """Reduces over the ranks and leaves the result on one of them.

        ``out = x_0 op x_1 op ... op x_{P-1}`` on the root, in rank order

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            root: the rank that gets the result, the same on every rank.
            out: [...] the result's memory on the root, which may be x itself; None: new memory of
                x's kind (numpy for ``__dlpack__``). Not used on the other ranks.

        Returns:
            `out` on the root; None on the other ranks.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root, shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
            root = whole_int64(_NAME, "root", root)
            number = level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            key = math.prod(x.shape), root, number
            plan = self._plans.get(key) or self._plans.add(key, self._plan(*key))
            if level.rank == root:
                out = resolve_out(_NAME, "out", x, tuple(x.shape), out)
            else:
                out = resolve_out(_NAME, "out", x, (0,), None)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(plan, x, out)
        return out if level.rank == root else None

    def _plan(self, numel: int, root: int, op: int) -> Any:
        return core().plan_scatter(
            _NAME, _OPERATION, self._level.size, ([numel], 0, 1, ""), share="root", root=root, op=op
        )
