"""The plain level's collectives in which ranks hand rows to each other, or to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.all_to_all_v import AllToAllV
from collops.collectives.gather_v import GatherV
from collops.collectives.reduce import Reduce
from collops.collectives.scatter_v import ScatterV

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel


class RowCollectives:
    """The part of a Communicator whose calls have a root, or a size for every pair of ranks."""

    def __init__(self, level: PlainLevel) -> None:
        self._all_to_all_v = AllToAllV(level)
        self._gather_v = GatherV(level)
        self._scatter_v = ScatterV(level)
        self._reduce = Reduce(level)

    def all_to_allv(
        self,
        x: Any,
        send_sizes: Sequence[int],
        recv_sizes: Sequence[int] | None = None,
        out: Any = None,
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
        return self._all_to_all_v(x, send_sizes, recv_sizes, out)

    def gatherv(self, x: Any, sizes: Sequence[int] | None = None, root: int = 0) -> Any:
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
        return self._gather_v(x, sizes, root)

    def scatterv(self, x: Any, sizes: Sequence[int], root: int = 0) -> Any:
        """Hands every rank its rows of one rank's x.

        ``out_r = x_root[s_r : s_r + sizes[r]]``, ``s_r = sizes[0] + ... + sizes[r - 1]``

        Any element type of a fixed size travels, and its bits stay as they are. The root first
        tells the others what its rows are, in one more exchange.

        Args:
            x: [rows, ...] on the root, contiguous: a numpy array, a torch tensor, or an object with
                ``__dlpack__`` in the CPU's memory. Not read on the other ranks, which pass None.
            sizes: rows for each rank, 0 included, the same list on every rank; their sum is the
                rows of x.
            root: the rank whose rows are handed out, the same on every rank.

        Returns:
            [sizes[rank], ...] in new memory of the kind of the root's x (numpy for
            ``__dlpack__``), on the root too.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on root or sizes, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Scatterv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         x = np.arange(4) if rank == 0 else None
            ...         return comm.scatterv(x, [1, 0, 3]).tolist()
            >>> run_ranks(scatter, 3)
            [[0], [], [1, 2, 3]]
        """
        return self._scatter_v(x, sizes, root)

    def reduce(self, x: Any, op: str = "sum", root: int = 0) -> Any:
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
        return self._reduce(x, op, root)
