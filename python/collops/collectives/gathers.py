"""The collectives that move rows: each result is of x's kind, for ``__dlpack__`` numpy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from collops.tensor_types import Array, SupportsDLPack, TensorT

    Sizes: TypeAlias = Sequence[int]


@of_communicator
class Gathers(PlainCalls):
    """Gathers, scatters, all_to_allv and broadcast."""

    @overload
    def all_gather(self, x: TensorT, out: TensorT | None = None) -> TensorT: ...

    @overload
    def all_gather(self, x: SupportsDLPack, out: Array | None = None) -> Array: ...

    def all_gather(self, x: Any, out: Any = None) -> Any:
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
        return self._plain.all_gather(x, out)

    @overload
    def all_gatherv(
        self, x: TensorT, sizes: Sizes | None = None, dim: int = 0, out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def all_gatherv(
        self,
        x: Sequence[TensorT],
        sizes: Sizes | None = None,
        dim: int = 0,
        out: list[TensorT | None] | None = None,
    ) -> list[TensorT]: ...

    @overload
    def all_gatherv(
        self, x: SupportsDLPack, sizes: Sizes | None = None, dim: int = 0, out: Array | None = None
    ) -> Array: ...

    def all_gatherv(self, x: Any, sizes: Sizes | None = None, dim: int = 0, out: Any = None) -> Any:
        """Gathers every rank's rows on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=dim)``

        Moves any element type of a fixed size, bit for bit. With dim 0 the call copies no array: x
        and out must be contiguous, and x may be this rank's own block of out. With another dim x
        and out may have any strides. If the blocks do not lie one after the other in the result
        (some dimension before dim is not 1), they arrive in other memory and are copied to their
        places; x is copied only if it is not contiguous. Where blocks are copied, x and out may
        overlap.

        Args:
            x: [..., rows, ...] this rank's rows along `dim`; any number of dims from 1, rows may
                be 0. A numpy array, a torch tensor, or an object with ``__dlpack__`` in the CPU's
                memory. Or a list of several tensors, which have the same rows and sizes; types and
                other dimensions may differ. All are checked before the first one moves.
            sizes: rows of each rank, the same list on every rank; None: the ranks exchange their
                numbers of rows first, once for a list too.
            dim: the dimension that is gathered; negative ones count from the end.
            out: [..., sum of sizes, ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``). A list of tensors where x is a list.

        Returns:
            `out`; for a list, the list of the results.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on sizes, dim, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        return self._plain.all_gatherv(x, sizes, dim, out)

    @overload
    def all_to_allv(
        self,
        x: TensorT,
        send_sizes: Sizes,
        recv_sizes: Sizes | None = None,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def all_to_allv(
        self,
        x: SupportsDLPack,
        send_sizes: Sizes,
        recv_sizes: Sizes | None = None,
        out: Array | None = None,
    ) -> Array: ...

    def all_to_allv(
        self, x: Any, send_sizes: Sizes, recv_sizes: Sizes | None = None, out: Any = None
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
        return self._plain.all_to_allv(x, send_sizes, recv_sizes, out)

    def broadcast(self, x: TensorT, root: int = 0) -> TensorT:
        """Gives every rank the root's x, in place.

        ``x_r = x_root``, for every rank r

        Moves any element type of a fixed size, bit for bit.

        Args:
            x: [...] of one shape on every rank, contiguous and writable; any number of dims, also
                none. A numpy array or a torch tensor in the CPU's memory.
            root: the rank whose elements the others get, the same on every rank.

        Returns:
            `x`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        result: TensorT = self._plain.broadcast(x, root)
        return result

    @overload
    def gatherv(self, x: TensorT, sizes: Sizes | None = None, root: int = 0) -> TensorT | None: ...

    @overload
    def gatherv(
        self, x: SupportsDLPack, sizes: Sizes | None = None, root: int = 0
    ) -> Array | None: ...

    def gatherv(self, x: Any, sizes: Sizes | None = None, root: int = 0) -> Any:
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
        return self._plain.gatherv(x, sizes, root)

    def scatterv(self, x: Any, sizes: Sizes | None = None, root: int = 0) -> Any:
        """Sends every rank its rows of the root's x.

        ``out_r = x_root[s_r : s_r + sizes[r]]``, ``s_r = sizes[0] + ... + sizes[r - 1]``

        Moves any element type of a fixed size, bit for bit. The root first sends the type and the
        shape of its rows to the other ranks.

        Args:
            x: [rows, ...] on the root, contiguous: a numpy array, a torch tensor, or an object with
                ``__dlpack__`` in the CPU's memory. Not read on the other ranks, which pass None.
            sizes: rows for each rank, 0 included, the same list on every rank; their sum is the
                rows of x. None: as numpy.array_split divides them.
            root: the rank whose rows are scattered, the same on every rank.

        Returns:
            [sizes[rank], ...] in new memory of the kind of the root's x (for ``__dlpack__`` numpy,
            on a GPU a CudaArray), on the root too.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root or sizes, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        return self._plain.scatterv(x, sizes, root)
