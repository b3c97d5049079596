"""reduce_scatter of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import Plan, plan_rows
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.tensor_types import ReduceOp


_NAME = "reduce_scatter"
_OPERATION = "ReduceScatter"  # identifies the call among the ranks


class ReduceScatter(Method):
    """reduce_scatter of one communicator."""

    def __call__(self, x: Any, op: ReduceOp, out: Any) -> Any:
        """Reduces over the ranks and leaves each rank one of P equal parts of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[r * rows / P : (r + 1) * rows / P]``, in rank order

        Args:
            x: [rows, ...] of one shape on every rank, contiguous; P divides rows. A numpy array, a
                torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [rows / P, ...] the result's memory, which may be this rank's own part of x; None:
                new memory of x's kind (numpy for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: torch.distributed.reduce_scatter_tensor; ncclReduceScatter.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         return comm.reduce_scatter(np.arange(4.0) + rank).tolist()
            >>> run_ranks(scatter, 2)
            [[1.0, 3.0], [5.0, 7.0]]
        """
        result = self._repeated.run(x, out, op)
        if result is not None:
            return result
        try:
            number = self._level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            key = x.shape, number
            plan = self._plans.get(key) or self._plans.add(key, self._plan(*key))
            out = resolve_out(_NAME, "out", x, plan.out_shape, out)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.run(plan.core, x, out)
        self._keep(plan.core, x, out, op)
        return out

    def _plan(self, shape: Sequence[int], op: int) -> Plan:
        level = self._level
        whole = list(shape), 0, 1, ""
        plan = core().plan_scatter(_NAME, _OPERATION, level.size, whole, share="equal", op=op)
        return plan_rows(plan, shape, 0, plan.rows[level.rank])
