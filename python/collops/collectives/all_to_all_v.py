"""all_to_allv of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import sizes_as_tuple, whole_sizes
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence


_NAME = "all_to_allv"
# Identify the call and the exchange of sizes before it among the ranks.
_OPERATION = "AllToAllV"
_EXCHANGE = "AllToAllV without sizes"


class AllToAllV(Method):
    """all_to_allv of one communicator."""

    def __call__(
        self, x: Any, send_sizes: Sequence[int], recv_sizes: Sequence[int] | None, out: Any
    ) -> Any:
        """Sends different rows of x to every rank.

        ``out_r = concatenate([rows of x_0 for r, rows of x_1 for r, ..., rows of x_{P-1} for r])``

        Moves any element type of a fixed size, bit for bit. Copies no array: x and out must be
        contiguous. A group of one rank, and ranks that send or receive nothing, are allowed.

        Args:
            x: [rows, ...] `send_sizes[0]` rows for rank 0, then `send_sizes[1]` for rank 1, and so
                on; a row has the same shape on every rank. A numpy array, a torch tensor, or an
                object with ``__dlpack__`` in the CPU's memory.
            send_sizes: rows for each rank, 0 included; their sum is the rows of x.
            recv_sizes: rows from each rank; recv_sizes[q] is rank q's send_sizes for this rank.
                None: the ranks exchange their send_sizes first.
            out: [sum of recv_sizes, ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on a pair's rows, the shape of a row or dtype, or
                one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        result = self._repeated.run(x, out, send_sizes, recv_sizes)
        if result is not None:
            return result
        level = self._level
        arguments = send_sizes, recv_sizes
        asks = recv_sizes is None
        try:
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            sends = _sizes("send_sizes", send_sizes)
            question = self._question(x, sends) if asks else None
        except Exception as error:
            level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            told = level.core.exchange_rows(question, sends)
            recv_sizes = told[level.rank :: level.size]
        try:
            receives = _sizes("recv_sizes", recv_sizes)
            plan = self._plan(x, sends, receives)
            out = resolve_out(_NAME, "out", x, (sum(receives), *x.shape[1:]), out)
            source, target = level.as_moved(_NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(plan, source, target)
        if not asks and source is x and target is out:
            self._keep(plan, x, out, *arguments)
        return out

    def _question(self, x: Any, sends: tuple[int, ...]) -> Any:
        # Before the ranks tell each other.
        core().check_sizes(_NAME, "send_sizes", sends, self._level.size, x.shape[0])
        return self._level.question(_EXCHANGE, [x], [0])

    def _plan(self, x: Any, sends: tuple[int, ...], receives: tuple[int, ...]) -> Any:
        level, element = self._level, self._level.element(x.dtype)
        key = x.shape, sends, receives, element.unit, element.name
        whole = list(x.shape), 0, element.unit, element.name
        return self._plans.get(key) or self._plans.add(
            key,
            core().plan_exchange(_NAME, _OPERATION, level.rank, level.size, whole, sends, receives),
        )


def _sizes(label: str, sizes: Any) -> tuple[int, ...]:
    return whole_sizes(_NAME, sizes_as_tuple(_NAME, sizes, label), label)
