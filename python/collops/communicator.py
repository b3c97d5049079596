"""The plain level: collectives on whole arrays whose rows are shared out unevenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collops.core import core
from collops.errors import Error, ErrorCode, RankMismatchError, raise_status, status_of
from collops.plain_tensors import both_as_bytes, check_x, resolve_out, window_array
from collops.plans import Plan, bad_argument, plan_gather, plan_scatter
from collops.row_exchange import RowExchange
from collops.tensors import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_KEPT_PLANS = 64


class Communicator:
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

    def __init__(self, core_communicator: Any) -> None:
        module = core()
        self._core = core_communicator
        self._rank = int(core_communicator.rank)
        self._size = int(core_communicator.size)
        self._blocks = module.Blocks
        self._ops: dict[str, int] = module.REDUCE_OPS
        self._dtypes: dict[str, int] = module.DTYPES
        self._kinds = (module.ALL_GATHER_V, module.REDUCE_SCATTER_V, module.SIZE_EXCHANGE)
        self._dtype_numbers: dict[Any, int | None] = {}
        self._plans: dict[Any, Plan] = {}
        records = module.Blocks([RowExchange.record_length()] * self._size)

        def gather(mine: Any, everyone: Any) -> None:
            core_communicator.all_gatherv(mine, everyone, records, module.SIZE_EXCHANGE)

        self._row_exchange = RowExchange(self._size, gather, self._dtypes)

    @property
    def rank(self) -> int:
        """This process's number, from 0 to size - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def handle(self) -> int:
        """The number that a struct's `hccl_comm` takes to use this communicator."""
        return int(self._core.handle)

    def __repr__(self) -> str:
        return (
            f"<collops.Communicator rank {self._rank} of {self._size}, "
            f"domain {self._core.comm_domain!r}, backend {self._core.backend}>"
        )

    def all_gatherv(
        self, x: Any, sizes: Sequence[int] | None = None, dim: int = 0, out: Any = None
    ) -> Any:
        """Gathers every rank's rows on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}])``

        Args:
            x: [rows, ...] this rank's rows; any number of dims from 1, rows may be 0. It may be
                this rank's own block of `out`.
            sizes: rows of each rank, the same list on every rank; None: the ranks tell each other,
                which costs one more exchange.
            dim: 0, the dimension that is gathered.
            out: [sum of sizes, ...] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on sizes, shape or dtype, or one refused.
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
        kind = self._kinds[0 if sizes is not None else 2]
        try:
            check_x("all_gatherv", x, dim)
            number = self._dtype_number(x)
            if sizes is None:
                self._row_exchange.fill(tuple(x.shape), number, x.dtype)
        except Exception as error:
            self._refuse(kind, error)
            raise
        if sizes is None:
            sizes = self._exchange_rows()
        kind = self._kinds[0]
        try:
            unit = 1 if number is not None else x.dtype.itemsize
            plan = self._plan("all_gatherv", x.shape, sizes, unit)
            out = resolve_out("all_gatherv", x, plan.out_shape, out)
            named = number is not None
            source, target = (x, out) if named else both_as_bytes("all_gatherv", x, out)
        except Exception as error:
            self._refuse(kind, error)
            raise
        self._core.all_gatherv(source, target, plan.blocks, kind)
        return out

    def reduce_scatterv(
        self,
        x: Any,
        sizes: Sequence[int] | None = None,
        dim: int = 0,
        op: str = "sum",
        out: Any = None,
    ) -> Any:
        """Reduces over the ranks and leaves each rank its rows of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r]``, in rank order

        Args:
            x: [rows, ...] of the same shape on every rank; any number of dims from 1.
            sizes: rows that each rank receives, the same list on every rank; None: as
                numpy.array_split shares the rows out.
            dim: 0, the dimension that is scattered.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"`` or ``"avg"`` (floating types only).
            out: [sizes[rank], ...] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks are told.
            RankMismatchError: the ranks disagree on shape, sizes, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

        Source of the semantics: MPI_Reduce_scatter; ncclReduceScatter for equal sizes.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         return comm.reduce_scatterv(np.arange(5.0) + rank).tolist()
            >>> run_ranks(scatter, 2)
            [[1.0, 3.0, 5.0], [7.0, 9.0]]
        """
        kind = self._kinds[1]
        try:
            check_x("reduce_scatterv", x, dim)
            if self._dtype_number(x) is None:
                raise_status(
                    ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
                    f"reduce_scatterv: elements of type {x.dtype} cannot be reduced",
                )
            number = self._ops.get(op, -1) if isinstance(op, str) else -1
            if number < 0:
                bad_argument(f"reduce_scatterv: op must be one of {list(self._ops)}, got {op!r}")
            plan = self._plan("reduce_scatterv", x.shape, sizes, 1)
            out = resolve_out("reduce_scatterv", x, plan.out_shape, out)
        except Exception as error:
            self._refuse(kind, error)
            raise
        self._core.reduce_scatterv(x, out, plan.blocks, number)
        return out

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

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Memory that the other ranks read in place, so a call on it copies each byte once.

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
        self._core.abort(reason or f"rank {self._rank} called abort()")

    def close(self) -> None:
        """Leaves the group; the others learn it when they next wait for this rank."""
        self._core.close(f"rank {self._rank} called close()")

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

    def _dtype_number(self, x: Any) -> int | None:
        """The number of x's element type; None for one that the core has no name for."""
        try:
            return self._dtype_numbers[x.dtype]
        except KeyError:
            number = self._dtypes.get(dtype_name(x.dtype))
            self._dtype_numbers[x.dtype] = number
            return number

    def _exchange_rows(self) -> tuple[int, ...]:
        self._row_exchange.gather()
        try:
            return self._row_exchange.rows()
        except RankMismatchError as error:
            # Every rank has found the same, and ends the group.
            self._core.close(error.message)
            raise

    def _plan(
        self, name: str, shape: Sequence[int], sizes: Sequence[int] | None, unit: int
    ) -> Plan:
        try:
            if sizes is not None and type(sizes) is not tuple:
                sizes = tuple(sizes if type(sizes) is list else np.asarray(sizes).tolist())
            key = (name, shape, sizes, unit)
            plan = self._plans.get(key)
        except TypeError:
            bad_argument(
                f"{name}: sizes must be a list of whole numbers, one per rank, got {sizes!r}"
            )
        if plan is not None:
            return plan
        if name == "all_gatherv" and sizes is not None:
            plan = plan_gather(self._blocks, shape, sizes, self._rank, self._size, unit)
        else:
            plan = plan_scatter(self._blocks, shape, sizes, self._rank, self._size)
        if len(self._plans) >= _KEPT_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _refuse(self, kind: int, error: Exception) -> None:
        try:
            self._core.refuse(kind, *status_of(error))
        except Error:
            return  # the communicator is gone; the first error says more
