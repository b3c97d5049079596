"""gatherv of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import sizes_as_tuple, whole_int64, whole_sizes
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence


_NAME = "gatherv"
# Identify the call and the exchange of sizes before it among the ranks.
_OPERATION = "GatherV"
_EXCHANGE = "GatherV without sizes"


class GatherV(Method):
    """gatherv of one communicator."""

    def __call__(self, x: Any, sizes: Sequence[int] | None, root: int) -> Any:
        """Gathers every rank's rows on one rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=0)`` on the root

        Moves any element type of a fixed size, bit for bit.

        Args:
            x: [rows, ...] this rank's rows, contiguous; rows may be 0, and a row has the same shape
                on every rank. A numpy array, a torch tensor, or an object with ``__dlpack__`` in
                the CPU's memory.
            sizes: rows of each rank, the same list on every rank; None: the ranks exchange their
                numbers of rows first.
            root: the rank that gets the rows, the same on every rank.

        Returns:
            [sum of sizes, ...] in new memory of x's kind on the root; None on the other ranks.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root, sizes, the shape of a row or dtype, or
                one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: MPI_Gatherv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     with collops.init() as comm:
            ...         rows = comm.gatherv(np.full(rank, rank), root=1)
            ...         return None if rows is None else rows.tolist()
            >>> run_ranks(gather, 3)
            [None, [1, 2, 2], None]
        """
        level = self._level
        asks = sizes is None
        try:
            root = whole_int64(_NAME, "root", root)
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            question = self._question(x, root) if asks else None
        except Exception as error:
            level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            sizes = level.core.exchange_rows(question, [x.shape[0]])
        try:
            rows = whole_sizes(_NAME, sizes_as_tuple(_NAME, sizes))
            plan = self._plan(x, rows, root)
            height = sum(rows) if level.rank == root else 0
            out = resolve_out(_NAME, "out", x, (height, *x.shape[1:]), None)
            source, target = level.as_moved(_NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(plan, source, target)
        return out if level.rank == root else None

    def _question(self, x: Any, root: int) -> Any:
        core().check_root(_NAME, root, self._level.size)  # before the ranks tell each other
        return self._level.question(_EXCHANGE, [x], [0])

    def _plan(self, x: Any, rows: tuple[int, ...], root: int) -> Any:
        level, element = self._level, self._level.element(x.dtype)
        key = x.shape, rows, root, element.unit, element.name
        whole = list(x.shape), 0, element.unit, element.name
        return self._plans.get(key) or self._plans.add(
            key,
            core().plan_exchange(
                _NAME,
                _OPERATION,
                level.rank,
                level.size,
                whole,
                sizes=rows,
                share="to root",
                root=root,
            ),
        )
