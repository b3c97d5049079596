"""gatherv of the plain level: from a user's call to calls of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import Kept, bad_argument, check_root, check_sizes, sizes_as_tuple
from collops.collectives.row_slices import as_moved, make_question, make_slices, only_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_NAME = "gatherv"
# By which the ranks know the call, and the exchange of sizes before it.
_OPERATION = "GatherV"
_EXCHANGE = "GatherV without sizes"


class GatherV:
    """gatherv of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._plans: Kept[Any] = Kept()  # collops._core.PlainPlan
        self._questions: Kept[Any] = Kept()  # collops._core.RowExchange

    def __call__(self, x: Any, sizes: Sequence[int] | None, root: int) -> Any:
        """Gathers every rank's rows on one rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=0)`` on the root

        Any element type of a fixed size travels, and its bits stay as they are.

        Args:
            x: [rows, ...] this rank's rows, contiguous; rows may be 0, and a row has the same shape
                on every rank. A numpy array, a torch tensor, or an object with ``__dlpack__`` in
                the CPU's memory.
            sizes: rows of each rank, the same list on every rank; None: the ranks tell each other,
                which costs one more exchange.
            root: the rank that gets the rows, the same on every rank.

        Returns:
            [sum of sizes, ...] in new memory of x's kind on the root; None on the other ranks.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on root, sizes, the shape of a row or dtype, or
                one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

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
            root = check_root(_NAME, root, level.size)
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            question = self._question(x) if asks else None
        except Exception as error:
            level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            sizes = level.core.exchange_rows(question, x.shape[0])
        try:
            rows = tuple(check_sizes(_NAME, sizes_as_tuple(_NAME, sizes), level.size))
            if rows[level.rank] != x.shape[0]:
                bad_argument(
                    f"{_NAME}: sizes[{level.rank}] is {rows[level.rank]}, but x has {x.shape[0]} "
                    f"rows on rank {level.rank}"
                )
            slices = self._slices(x, rows, root)
            height = sum(rows) if level.rank == root else 0
            out = resolve_out(_NAME, "out", x, (height, *x.shape[1:]), None)
            source, target = as_moved(level, _NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(slices, source, target)
        return out if level.rank == root else None

    def _question(self, x: Any) -> Any:
        key = x.shape[1:], x.dtype
        known = self._questions.get(key)
        return known or self._questions.keep(key, make_question(self._level, _EXCHANGE, x))

    def _slices(self, x: Any, rows: tuple[int, ...], root: int) -> Any:
        level, element = self._level, self._level.element(x.dtype)
        key = x.shape[1:], rows, root, element.unit, element.name
        known = self._plans.get(key)
        if known is None:
            sends = only_at(root, rows[level.rank], level.size)
            receives = list(rows) if level.rank == root else [0] * level.size
            slices = make_slices(
                _NAME, _OPERATION, x.shape[1:], element, sends, receives, root, rows
            )
            known = self._plans.keep(key, slices)
        return known
