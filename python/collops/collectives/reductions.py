"""The collectives that reduce, and the names of reductions: torch.distributed's, and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, overload

from collops.collectives.calls import PlainCalls, bad_argument, of_communicator
from collops.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from collops.tensor_types import Array, ReduceOp, SupportsDLPack, TensorT

    Sizes: TypeAlias = Sequence[int]

# What other libraries call the same reduction.
_WORDS_OF_OTHERS = {
    "add": "sum",
    "average": "avg",
    "maximum": "max",
    "mean": "avg",
    "minimum": "min",
    "mul": "prod",
    "multiply": "prod",
    "product": "prod",
}


def reduction_name(op: Any) -> Any:
    """The core's word for a member of torch.distributed.ReduceOp; any other `op` as it is."""
    if isinstance(op, str) or not type(op).__module__.startswith("torch."):
        return op
    # A ReduceOp has its kind as `op`; the members of the class are kinds themselves.
    word = getattr(getattr(op, "op", op), "name", None)
    return op if word is None else "prod" if word == "PRODUCT" else word.lower()


def refuse_reduction(name: str, op: Any, known: Iterable[str]) -> NoReturn:
    """Raises ERROR_INVALID_PARAM for a reduction that a method does not have.

    Args:
        name: the method's name, for messages.
        op: what the caller passed.
        known: the words that the method takes.
    """
    words = list(known)
    listed = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
    if hasattr(op, "shape"):  # the result's memory, where the reduction stands
        bad_argument(f"{name}: op must be {listed}, got {type(op).__name__}: pass memory as out=")
    # "ReduceOp.SUM", np.add and the function sum have the word in their names.
    lower = str(getattr(op, "__name__", op)).lower().rpartition(".")[2]
    meant = _WORDS_OF_OTHERS.get(lower, "")
    near = meant if meant in words else nearest(lower, words)
    hint = f'; did you mean "{near}"?' if near else ""
    bad_argument(f"{name}: op must be {listed}, got {op!r}{hint}")


@of_communicator
class Reductions(PlainCalls):
    """Reductions; each result is of x's kind, for ``__dlpack__`` numpy's."""

    @overload
    def all_reduce(
        self, x: TensorT, op: ReduceOp = "sum", out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def all_reduce(
        self, x: SupportsDLPack, op: ReduceOp = "sum", out: Array | None = None
    ) -> Array: ...

    @overload
    def all_reduce(
        self,
        *,
        partials: Sequence[TensorT],
        leaves: int,
        leaf_begin: int | None = None,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def all_reduce(
        self,
        *,
        partials: Sequence[SupportsDLPack],
        leaves: int,
        leaf_begin: int | None = None,
        out: Array | None = None,
    ) -> Array: ...

    def all_reduce(
        self,
        x: Any = None,
        op: ReduceOp = "sum",
        out: Any = None,
        *,
        partials: Any = None,
        leaves: int | None = None,
        leaf_begin: int | None = None,
    ) -> Any:
        """Reduces over the ranks and leaves every rank the whole result.

        ``out = x_0 op x_1 op ... op x_{P-1}``, in rank order

        With partials= each rank gives several tensors, such as the gradients of its microbatches,
        and the sum of all ranks' is the same bits whichever rank has which of them:

        ``out = tree(0, leaves)``, where ``tree(a, a + 1) = partial a`` and ``tree(a, b) =
        tree(a, c) + tree(c, b)`` with the largest power of two below ``b - a`` as ``c - a``

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [...] the result's memory, which may be x itself, or one of the partials; None: new
                memory of x's kind (numpy for ``__dlpack__``).
            partials: in the place of x: a list of tensors [...] of one shape and dtype, which are
                `leaves` on all ranks together, in the order of the ranks. float16 and bfloat16 are
                added in float32 and rounded once. Only op "sum". An empty list needs out=.
            leaves: 1 to 4096: the number of partials of all ranks, the same on every rank.
            leaf_begin: the number of this rank's first partial among all; None: the partials are
                cut evenly, as numpy.array_split does. The ranks first tell each other (one more
                round), so all give it or none.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, dtype, op or leaves, or one refused; or
                their partials do not follow each other from 0 to leaves.
            UnsupportedError: partials= of another type than float32, float16 or bfloat16 on a GPU.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
            >>> def add_gradients(rank, ranks):
            ...     with collops.init() as comm:
            ...         gradients = np.float32([[1e8], [1.0], [-1e8], [3.0]])
            ...         own = np.array_split(gradients, ranks)[rank]
            ...         return comm.all_reduce(partials=list(own), leaves=4).tolist()
            >>> [run_ranks(add_gradients, ranks, ranks)[0] for ranks in (1, 2, 3)]
            [[0.0], [0.0], [0.0]]
        """
        if partials is None and leaves is None and leaf_begin is None:
            return self._plain.all_reduce(x, op, out)
        return self._plain.all_reduce(x, op, out, partials, leaves, leaf_begin)

    @overload
    def reduce(
        self, x: TensorT, op: ReduceOp = "sum", root: int = 0, out: TensorT | None = None
    ) -> TensorT | None: ...

    @overload
    def reduce(
        self, x: SupportsDLPack, op: ReduceOp = "sum", root: int = 0, out: Array | None = None
    ) -> Array | None: ...

    def reduce(self, x: Any, op: ReduceOp = "sum", root: int = 0, out: Any = None) -> Any:
        """Reduces over the ranks and leaves the result on one of them.

        ``out = x_0 op x_1 op ... op x_{P-1}`` on the root, in rank order

        Args:
            x: [...] of one shape on every rank, contiguous; any number of dims, also none. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            root: the rank that gets the result, the same on every rank.
            out: [...] the result's memory on the root, which may be x itself; None: new memory of
                x's kind (numpy for ``__dlpack__``). Not used on the other ranks.

        Returns:
            `out` on the root; None on the other ranks.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root, shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        return self._plain.reduce(x, op, root, out)

    @overload
    def reduce_scatter(
        self, x: TensorT, op: ReduceOp = "sum", out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def reduce_scatter(
        self, x: SupportsDLPack, op: ReduceOp = "sum", out: Array | None = None
    ) -> Array: ...

    def reduce_scatter(self, x: Any, op: ReduceOp = "sum", out: Any = None) -> Any:
        """Reduces over the ranks and leaves each rank one of P equal parts of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[r * rows / P : (r + 1) * rows / P]``, in rank order

        Args:
            x: [rows, ...] of one shape on every rank, contiguous; P divides rows. A numpy array, a
                torch tensor, or an object with ``__dlpack__`` in the CPU's memory.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [rows / P, ...] the result's memory, which may be this rank's own part of x; None:
                new memory of x's kind (numpy for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        return self._plain.reduce_scatter(x, op, out)

    @overload
    def reduce_scatterv(
        self,
        x: TensorT | Sequence[TensorT],
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def reduce_scatterv(
        self,
        x: SupportsDLPack | Sequence[SupportsDLPack],
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: Array | None = None,
    ) -> Array: ...

    @overload
    def reduce_scatterv(
        self,
        *,
        partials: Sequence[TensorT],
        sizes: Sizes | None = None,
        leaves: int,
        leaf_begin: int | None = None,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def reduce_scatterv(
        self,
        *,
        partials: Sequence[SupportsDLPack],
        sizes: Sizes | None = None,
        leaves: int,
        leaf_begin: int | None = None,
        out: Array | None = None,
    ) -> Array: ...

    def reduce_scatterv(
        self,
        x: Any = None,
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: Any = None,
        *,
        partials: Any = None,
        leaves: int | None = None,
        leaf_begin: int | None = None,
    ) -> Any:
        """Reduces over the ranks and leaves each rank its rows of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r along dim]``, in rank order

        With dim 0 the call copies no array, and x and out must be contiguous. With another dim they
        may have any strides; if the blocks do not lie one after the other in x (some dimension
        before dim is not 1), x is copied once into that order. Blocks of a list are copied once.

        With partials= each rank gives several tensors of all rows, and the sum does not depend on
        which rank has which of them; see all_reduce().

        Args:
            x: [..., rows, ...] of the same shape on every rank; any number of dims from 1. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory. Or a
                list of one block per destination rank; the blocks may differ in `dim` only.
            sizes: rows that each rank receives, the same list on every rank; None: as
                numpy.array_split divides the rows, or the rows of the blocks of a list.
            dim: the dimension that is scattered; negative ones count from the end.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [..., sizes[rank], ...] the result's memory, which may be this rank's own block of
                x or of a partial; None: new memory of x's kind (numpy for ``__dlpack__``).
            partials: in the place of x: a list of tensors [rows, ...], as in all_reduce(). Only dim
                0 and op "sum". An empty list needs sizes= and out=.
            leaves: the number of partials of all ranks, as in all_reduce().
            leaf_begin: the number of this rank's first partial among all, as in all_reduce().

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, sizes, dim, dtype, op or leaves, or one
                refused; or their partials do not follow each other from 0 to leaves.
            UnsupportedError: partials= of another type than float32, float16 or bfloat16 on a GPU.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

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
        if partials is None and leaves is None and leaf_begin is None:
            return self._plain.reduce_scatterv(x, sizes, dim, op, out)
        return self._plain.reduce_scatterv(x, sizes, dim, op, out, partials, leaves, leaf_begin)
