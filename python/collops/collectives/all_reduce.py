"""all_reduce of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, resolve_out
from collops.core import core

if TYPE_CHECKING:
    from collops.tensor_types import ReduceOp

_NAME = "all_reduce"
_OPERATION = "AllReduce"  # identifies the call among the ranks


class AllReduce(Method):
    """all_reduce of one communicator."""

    def __call__(self, x: Any, op: ReduceOp, out: Any) -> Any:
        """Reduces over the ranks and leaves every rank the whole result.

        ``out = x_0 op x_1 op ... op x_{P-1}``, in rank order

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [...] the result's memory, which may be x itself; None: new memory of x's kind
                (numpy for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: ncclAllReduce; torch.distributed.all_reduce where out is x.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def add(rank):
            ...     with collops.init() as comm:
            ...         x = np.array([rank, 1.5])
            ...         return comm.all_reduce(x, out=x).tolist()
            >>> run_ranks(add, 3)[0]
            [3.0, 4.5]
        """
        result = self._repeated.run(x, out, op)
        if result is not None:
            return result
        try:
            number = self._level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            out = resolve_out(_NAME, "out", x, x.shape, out)
            plan = self._plans.get(number) or self._plans.add(
                number, core().plan_all_reduce(number)
            )
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.run(plan, x, out)
        self._keep(plan, x, out, op)
        return out
