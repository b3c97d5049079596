"""The plain level's collectives in which every rank has the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.all_gather import AllGather
from collops.collectives.all_reduce import AllReduce
from collops.collectives.broadcast import Broadcast
from collops.collectives.reduce_scatter import ReduceScatter

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel


class EvenCollectives:
    """The part of a Communicator whose calls have one shape on every rank."""

    def __init__(self, level: PlainLevel) -> None:
        self._all_gather = AllGather(level)
        self._reduce_scatter = ReduceScatter(level)
        self._all_reduce = AllReduce(level)
        self._broadcast = Broadcast(level)

    def all_gather(self, x: Any, out: Any = None) -> Any:
        """Gathers every rank's x on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=0)``

        Any element type of a fixed size travels, and its bits stay as they are. No array is copied
        here: x and out must be contiguous, and x may be this rank's own block of out.

        Args:
            x: [rows, ...] of one shape on every rank; any number of dims from 1, rows may be 0. A
                numpy array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            out: [P * rows, ...] the result's memory; None: new memory of x's kind (numpy for
                ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

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
        return self._all_gather(x, out)

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """Reduces over the ranks and leaves each rank one of P equal parts of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[r * rows / P : (r + 1) * rows / P]``, in rank order

        Args:
            x: [rows, ...] of one shape on every rank, contiguous; P divides rows. A numpy array, a
                torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"`` or ``"avg"`` (floating types only).
            out: [rows / P, ...] the result's memory; None: new memory of x's kind (numpy for
                ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

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
        return self._reduce_scatter(x, op, out)

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> Any:
        """Reduces over the ranks and leaves every rank the whole result.

        ``out = x_0 op x_1 op ... op x_{P-1}``, in rank order

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"`` or ``"avg"`` (floating types only).
            out: [...] the result's memory, which may be x itself; None: new memory of x's kind
                (numpy for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

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
        return self._all_reduce(x, op, out)

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Gives every rank the root's x, in place.

        ``x_r = x_root``, for every rank r

        Any element type of a fixed size travels, and its bits stay as they are.

        Args:
            x: [...] of one shape on every rank, contiguous and writable; any number of dims, also
                none. A numpy array or a torch tensor in the CPU's memory.
            root: the rank whose elements the others get, the same on every rank.

        Returns:
            `x`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on root, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: torch.distributed.broadcast; ncclBroadcast in place.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def tell(rank):
            ...     with collops.init() as comm:
            ...         return comm.broadcast(np.full(2, rank), root=1).tolist()
            >>> run_ranks(tell, 3)
            [[1, 1], [1, 1], [1, 1]]
        """
        return self._broadcast(x, root)
