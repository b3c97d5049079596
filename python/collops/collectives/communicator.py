"""The plain level: collectives on whole arrays that are shared out unevenly."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from collops.collectives.all_gather_v import AllGatherV
from collops.collectives.even_collectives import EvenCollectives
from collops.collectives.level import PlainLevel
from collops.collectives.linear_parallel import LinearParallel
from collops.collectives.message_calls import MessageCalls
from collops.collectives.messages import Messages
from collops.collectives.plans import bad_argument
from collops.collectives.products import LinearCalls
from collops.collectives.reduce_scatter_v import ReduceScatterV
from collops.collectives.row_collectives import RowCollectives
from collops.collectives.started import StartedCall, Starts
from collops.collectives.windows import window_array
from collops.core import core
from collops.errors import status_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_INT_MAX = 2**31 - 1


class Communicator(EvenCollectives, RowCollectives, LinearCalls, Messages):
    """A group of ranks, as collops.init() returns it.

    One thread at a time may be inside a call. Every call waits for all ranks, at most the
    communicator's time-out. After an error other than another rank's refusal it refuses calls, and
    collops.init() makes a new one. Use it with ``with`` to close it at the end.

    Example:
        >>> import collops
        >>> from collops.testing import run_ranks
        >>> def who(rank):
        ...     with collops.init() as comm:
        ...         return comm.rank, comm.size
        >>> run_ranks(who, 2)
        [(0, 2), (1, 2)]
    """

    def __init__(self, core_communicator: Any, level: PlainLevel | None = None) -> None:
        self._core = core_communicator
        self._level = level or PlainLevel(core_communicator)
        self._starts: Starts | None = None
        EvenCollectives.__init__(self, self._level)
        RowCollectives.__init__(self, self._level)
        self._all_gather_v = AllGatherV(self._level)
        self._reduce_scatter_v = ReduceScatterV(self._level)
        self._linear = LinearParallel(self._level)
        self._messages = MessageCalls(self._level)

    @property
    def rank(self) -> int:
        """This process's number, from 0 to size - 1."""
        return self._level.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._level.size

    @property
    def handle(self) -> int:
        """The number that a struct's `hccl_comm` takes to use this communicator."""
        return int(self._core.handle)

    def __repr__(self) -> str:
        return (
            f"<collops.Communicator rank {self.rank} of {self.size}, "
            f"domain {self._core.comm_domain!r}, backend {self._core.backend}>"
        )

    def all_gatherv(
        self,
        x: Any,
        sizes: Sequence[int] | None = None,
        dim: int = 0,
        out: Any = None,
    ) -> Any:
        """Gathers every rank's rows on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=dim)``

        Any element type of a fixed size travels, and its bits stay as they are. With dim 0 no
        array is copied here: x and out must be contiguous, and x may be this rank's own block of
        out. With another dim any layout goes. If the blocks do not lie one after the other in the
        result (some dimension before dim is not 1), they arrive in memory of their own and are
        copied to their places; x is copied only if it is not contiguous. x and out may overlap
        where something is copied.

        Args:
            x: [..., rows, ...] this rank's rows along `dim`; any number of dims from 1, rows may
                be 0. A numpy array, a torch tensor, or an object with ``__dlpack__`` in memory of
                the CPU. Or a list of them: several tensors in one call. They share rows and sizes;
                types and other dimensions may differ. They are all checked before the first one
                moves.
            sizes: rows of each rank, the same list on every rank; None: the ranks tell each other,
                which costs one more exchange, for a list too.
            dim: the dimension that is gathered; negative ones count from the end.
            out: [..., sum of sizes, ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``). A list of tensors where x is a list.

        Returns:
            `out`; for a list, the list of the results.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on sizes, dim, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Allgatherv; ncclAllGather for equal sizes.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     with collops.init() as comm:
            ...         return comm.all_gatherv(np.full(rank + 1, rank)).tolist()
            >>> run_ranks(gather, 3)[0]
            [0, 1, 1, 2, 2, 2]
        """
        return self._all_gather_v(x, sizes, dim, out)

    def reduce_scatterv(
        self,
        x: Any,
        sizes: Sequence[int] | None = None,
        dim: int = 0,
        op: str = "sum",
        out: Any = None,
    ) -> Any:
        """Reduces over the ranks and leaves each rank its rows of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r along dim]``, in rank order

        With dim 0 no array is copied here, and x and out must be contiguous. With another dim any
        layout goes; if the blocks do not lie one after the other in x (some dimension before dim is
        not 1), x is copied once into that order, and so are the blocks of a list.

        Args:
            x: [..., rows, ...] of the same shape on every rank; any number of dims from 1. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in memory of the CPU. Or a
                list of one block per destination rank, which may differ in `dim` alone.
            sizes: rows that each rank receives, the same list on every rank; None: as
                numpy.array_split shares the rows out, or as the blocks of a list have them.
            dim: the dimension that is scattered; negative ones count from the end.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"`` or ``"avg"`` (floating types only).
            out: [..., sizes[rank], ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on shape, sizes, dim, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Reduce_scatter; ncclReduceScatter for equal sizes;
        torch.distributed.reduce_scatter for a list.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         return comm.reduce_scatterv(np.arange(5.0) + rank).tolist()
            >>> run_ranks(scatter, 2)
            [[1.0, 3.0, 5.0], [7.0, 9.0]]
        """
        return self._reduce_scatter_v(x, sizes, dim, op, out)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Makes a communicator of the ranks that gave the same color; every rank calls it.

        ``part = the ranks with my color, numbered by key and then by their rank here``

        Parts live side by side with this communicator and with each other, and can be split again.
        Closing one leaves the others open. Its `handle` serves structs as `hccl_comm`.

        Args:
            color: which part this rank joins, at least 0; None or a negative number: none of them.
            key: order within the part; equal keys keep the order of ranks.

        Returns:
            This rank's part, once all its ranks are there; None for a rank that joins none.

        Raises:
            ArgumentError: color or key is no whole number; the other ranks are told.
            RankMismatchError: another rank refused, or called something else.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Comm_split.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def work(rank):
            ...     with collops.init() as comm, comm.split(color=rank % 2) as part:
            ...         return part.rank, part.all_gatherv(np.array([rank])).tolist()
            >>> run_ranks(work, 3)
            [(0, [0, 2]), (0, [1]), (1, [0, 2])]
        """
        try:
            color = -1 if color is None else max(_whole("color", color), -1)
            key = _whole("key", key)
            if color > _INT_MAX:
                bad_argument(f"split: color must be from 0 to {_INT_MAX}, got {color}")
            if abs(key) > _INT_MAX:
                bad_argument(f"split: key must be from {-_INT_MAX} to {_INT_MAX}, got {key}")
        except Exception as error:
            self._level.refuse("Split", error)
            raise
        part = self._core.split(color, key)
        return None if part is None else Communicator(part)

    def barrier(self) -> None:
        """Waits until every rank has called it.

        Raises:
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Example:
            >>> import collops
            >>> from collops.testing import run_ranks
            >>> run_ranks(lambda rank: collops.init().barrier(), 2)
            [None, None]
        """
        self._core.barrier()

    def start(self, name: str, *args: Any, **kwargs: Any) -> StartedCall:
        """Starts a call and returns at once; its wait() gives what the call returns.

        ``comm.start("all_gatherv", x, sizes).wait() = comm.all_gatherv(x, sizes)``

        Calls of the group run in the order of their starts, which is the same on every rank; a call
        that is not started runs after those that were. Messages (send, recv, exchange) go on beside
        them. The first start() adds a thread to this communicator, which makes the calls that
        nobody waits for; close() ends it. Python runs in it only for calls that make something of
        what the other ranks tell them: those without sizes, scatterv, products, and split.

        Args:
            name: of a method that waits for other ranks: ``"all_gatherv"``, ``"recv"``, ...
            args, kwargs: as the method takes them. Tensors must not be changed, and `out` not be
                read, until the call has ended. They are kept until then.

        Returns:
            The call. The communicator's time-out counts from when those before it have ended.

        Raises:
            ArgumentError: there is no such call; or its arguments are wrong, and the other ranks
                are told in its place. What can be checked in its turn alone is raised by wait().
            AbortedError and others: the communicator has ended. A failure ends all that were
                started and have not ended.

        Source of the semantics: torch.distributed with async_op=True; MPI_Iallgatherv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def overlap(rank):
            ...     with collops.init() as comm:
            ...         gathered = comm.start("all_gatherv", np.full(rank + 1, rank), [1, 2])
            ...         total = comm.start("all_reduce", np.array([rank + 0.5]))
            ...         return gathered.wait().tolist(), total.wait().tolist()
            >>> run_ranks(overlap, 2)
            [([0, 1, 1], [2.0]), ([0, 1, 1], [2.0])]
        """
        if self._starts is None:
            self._starts = Starts(self._core, self._calls_of)
        return self._starts(name, args, kwargs)

    def _calls_of(self, level: PlainLevel) -> Communicator:
        """The same methods on another level."""
        return Communicator(level.core, level)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Memory that the other ranks read in place, so a call on it copies each byte once.

        In a child of fork() it stays the same memory: what the child writes, this rank and its
        peers read. The child is to copy what it wants to change.

        Args:
            shape: sizes of the dimensions.
            dtype: element type; a torch dtype makes a torch tensor, any other a numpy array.

        Returns:
            An uninitialised array. It lives as long as something refers to it, also after close().

        Raises:
            Error: there is no memory left, or the backend has no windows.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     comm = collops.init()
            ...     x = comm.empty((2, 3), np.float32)
            ...     x[:] = rank
            ...     return comm.all_gatherv(x).sum()
            >>> float(run_ranks(gather, 2)[0])
            6.0
        """
        window = core().window
        return window_array(lambda num_bytes: window(self._core, num_bytes), shape, dtype)

    def abort(self, reason: str = "") -> None:
        """Ends every call of every rank with ERROR_ABORTED; may be called from any thread."""
        self._core.abort(reason or f"rank {self.rank} called abort()")

    def close(self) -> None:
        """Leaves the group; the others learn it when they next wait for this rank."""
        self._core.close(f"rank {self.rank} called close()")

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._core.close(status_of(error)[1])


# A TypeError of Python's own names a method by this; users know no other class.
for _part in (EvenCollectives, RowCollectives, LinearCalls, Messages):
    for _name, _method in vars(_part).items():
        if not _name.startswith("_"):
            _method.__qualname__ = f"{Communicator.__name__}.{_name}"


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        bad_argument(f"split: {name} must be a whole number, got {value!r}")
