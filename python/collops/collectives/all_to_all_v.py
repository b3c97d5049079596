"""all_to_allv of the plain level: from a user's call to calls of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import Kept, bad_argument, check_sizes, sizes_as_tuple
from collops.collectives.row_slices import as_moved, make_question, make_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_NAME = "all_to_allv"
# By which the ranks know the call, and the exchange of sizes before it.
_OPERATION = "AllToAllV"
_EXCHANGE = "AllToAllV without sizes"


class AllToAllV:
    """all_to_allv of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._plans: Kept[Any] = Kept()  # collops._core.PlainPlan
        self._questions: Kept[Any] = Kept()  # collops._core.RowExchange

    def __call__(
        self, x: Any, send_sizes: Sequence[int], recv_sizes: Sequence[int] | None, out: Any
    ) -> Any:
        """Hands every rank rows of its own, from every rank.

        ``out_r = concatenate([rows of x_0 for r, rows of x_1 for r, ..., rows of x_{P-1} for r])``

        Any element type of a fixed size travels, and its bits stay as they are. No array is copied
        here: x and out must be contiguous. One rank, and ranks that send or receive nothing, are
        fine.

        Args:
            x: [rows, ...] `send_sizes[0]` rows for rank 0, then `send_sizes[1]` for rank 1, and so
                on; a row has the same shape on every rank. A numpy array, a torch tensor, or an
                object with ``__dlpack__`` in the CPU's memory.
            send_sizes: rows for each rank, 0 included; their sum is the rows of x.
            recv_sizes: rows from each rank; recv_sizes[q] is rank q's send_sizes for this rank.
                None: the ranks tell each other, which costs one more exchange.
            out: [sum of recv_sizes, ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on a pair's rows, the shape of a row or dtype, or
                one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Alltoallv; torch.distributed.all_to_all_single.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def swap(rank):
            ...     with collops.init() as comm:
            ...         mine = np.full(3, rank)
            ...         return comm.all_to_allv(mine, [[1, 2], [3, 0]][rank]).tolist()
            >>> run_ranks(swap, 2)
            [[0, 1, 1, 1], [0, 0]]
        """
        level = self._level
        asks = recv_sizes is None
        try:
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            sends = self._sizes("send_sizes", send_sizes)
            if sum(sends) != x.shape[0]:
                bad_argument(f"{_NAME}: send_sizes make {sum(sends)} rows, but x has {x.shape[0]}")
            question = self._question(x) if asks else None
        except Exception as error:
            level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            told = level.core.exchange_lists(question, list(sends))
            recv_sizes = told[level.rank :: level.size]
        try:
            receives = self._sizes("recv_sizes", recv_sizes)
            slices = self._slices(x, sends, receives)
            out = resolve_out(_NAME, "out", x, (sum(receives), *x.shape[1:]), out)
            source, target = as_moved(level, _NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(slices, source, target)
        return out

    def _sizes(self, label: str, sizes: Any) -> tuple[int, ...]:
        numbers = sizes_as_tuple(_NAME, sizes, label)
        return tuple(check_sizes(_NAME, numbers, self._level.size, label))

    def _question(self, x: Any) -> Any:
        key = x.shape[1:], x.dtype
        known = self._questions.get(key)
        return known or self._questions.keep(key, make_question(self._level, _EXCHANGE, x))

    def _slices(self, x: Any, sends: tuple[int, ...], receives: tuple[int, ...]) -> Any:
        rank, element = self._level.rank, self._level.element(x.dtype)
        if sends[rank] != receives[rank]:
            bad_argument(
                f"{_NAME}: send_sizes[{rank}] is {sends[rank]} but recv_sizes[{rank}] is "
                f"{receives[rank]}: what this rank {rank} sends to itself must be equal"
            )
        key = x.shape[1:], sends, receives, element.unit, element.name
        known = self._plans.get(key)
        if known is None:
            slices = make_slices(
                _NAME, _OPERATION, x.shape[1:], element, list(sends), list(receives)
            )
            known = self._plans.keep(key, slices)
        return known
