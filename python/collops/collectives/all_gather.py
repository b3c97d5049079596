"""all_gather of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, both_as_bytes, normal_dim, resolve_out
from collops.collectives.plans import Plan, plan_rows
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import Element

_NAME = "all_gather"
_OPERATION = "AllGather"  # identifies the call among the ranks


class AllGather(Method):
    """all_gather of one communicator."""

    def __call__(self, x: Any, out: Any) -> Any:
        """Gathers every rank's x on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=0)``

        Moves any element type of a fixed size, bit for bit. Copies no array: x and out must be
        contiguous, and x may be this rank's own block of out.

        Args:
            x: [rows, ...] of one shape on every rank; any number of dims from 1, rows may be 0. A
                numpy array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            out: [P * rows, ...] the result's memory; None: new memory of x's kind (numpy for
                ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: torch.distributed.all_gather_into_tensor; ncclAllGather.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     with collops.init() as comm:
            ...         return comm.all_gather(np.array([rank, 10 * rank])).tolist()
            >>> run_ranks(gather, 3)[0]
            [0, 0, 1, 10, 2, 20]
        """
        result = self._repeated.run(x, out)
        if result is not None:
            return result
        try:
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            element = self._level.element(x.dtype)
            key = x.shape, element.unit, element.name
            plan = self._plans.get(key) or self._plans.add(key, self._plan(x.shape, element))
            out = resolve_out(_NAME, "out", x, plan.out_shape, out)
            source, target = x, out
            if element.number is None:
                source, target = both_as_bytes(_NAME, x, out)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.run(plan.core, source, target)
        if source is x:
            self._keep(plan.core, x, out)
        return out

    def _plan(self, shape: Sequence[int], element: Element) -> Plan:
        level = self._level
        whole = list(shape), 0, element.unit, element.name
        rows = [int(shape[0])] * level.size
        plan = core().plan_gather(
            _NAME, _OPERATION, level.rank, level.size, whole, rows, one_shape=True
        )
        return plan_rows(plan, shape, 0, None)
