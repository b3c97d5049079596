"""The plain level's products with experts: rows go to the ranks of their experts, and back.

Both accumulate in float32 and round once. x and weight are float16, bfloat16 or float32, one type
for all tensors, and contiguous. With `scale` both are int8, and ``float32(x @ weight) * scale``,
and ``* x_scale[row]`` where that is given, is in place of ``x @ weight``; the sum is int32, modulo
2^32 and so exact. The rows of an expert lie together, and those from one rank within them, in that
rank's order. Counts may change with every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import torch

    from collops.tensor_types import Array, DType, TensorT

    Table: TypeAlias = Sequence[Sequence[int]] | Array


@of_communicator
class GroupedProducts(PlainCalls):
    """Products of rows with the experts that they are for."""

    @overload
    def all_to_allv_grouped_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        send_sizes: Table,
        recv_sizes: Table | None = None,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        scale: TensorT | None = None,
        x_scale: TensorT | None = None,
        out_dtype: DType | torch.dtype | None = None,
        return_rows: Literal[False] = False,
        max_rows: int | None = None,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def all_to_allv_grouped_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        send_sizes: Table,
        recv_sizes: Table | None = None,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        scale: TensorT | None = None,
        x_scale: TensorT | None = None,
        out_dtype: DType | torch.dtype | None = None,
        return_rows: Literal[True],
        max_rows: int | None = None,
        out: TensorT | None = None,
    ) -> tuple[TensorT, TensorT]: ...

    def all_to_allv_grouped_matmul(
        self,
        x: Any,
        weight: Any,
        send_sizes: Table,
        recv_sizes: Table | None = None,
        *,
        trans_weight: bool = False,
        residual: Any = None,
        scale: Any = None,
        x_scale: Any = None,
        out_dtype: DType | torch.dtype | None = None,
        return_rows: bool = False,
        max_rows: int | None = None,
        out: Any = None,
    ) -> Any:
        """Sends rows to the experts of all ranks and multiplies what this rank's experts get.

        ``rows_r = concatenate([x_s's rows for expert e of r for e in experts for s in ranks])``,
        and ``out_r = (each row of rows_r) @ weight_r[its expert] + residual_r``

        An expert without rows costs nothing: its weight is not read.

        Args:
            x: [rows, k] this rank's rows, sorted by rank and then by expert; rows may be 0.
            weight: [experts, k, n], with `trans_weight` [experts, n, k]; this rank's experts, as
                many on every rank.
            send_sizes: [ranks, experts] rows for each expert of each rank; their sum is the rows
                of x. Lists, an array or a tensor.
            recv_sizes: [ranks, experts] rows from each rank for each of this rank's experts:
                recv_sizes[s] is line r of the send_sizes of rank s. None: the ranks exchange
                their send_sizes first.
            trans_weight: whether an expert's weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            scale: [experts, n] of x and weight of int8; None: they are of floating point.
            x_scale: [rows] float32, of each row of an x of int8, with which it travels; None: 1.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            return_rows: whether to return the received rows, too.
            max_rows: the most rows that this rank takes; more are an error on all ranks, and
                nothing moves. None: any number.
            out: [sum of recv_sizes, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`; with `return_rows` also the rows that were multiplied, [sum of recv_sizes, k].

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on counts, experts, k, n or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: CANN's aclnnAlltoAllvGroupedMatMul; ATB's LinearParallel,
        ALLTOALLVC_ALL_GATHER_GMM.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x = np.array([[1.0], [2.0]], np.float32) + 10 * rank
            ...     weight = np.full((1, 1, 1), rank + 1, np.float32)
            ...     counts = [[[1], [1]], [[0], [2]]][rank]
            ...     with collops.init() as comm:
            ...         return comm.all_to_allv_grouped_matmul(x, weight, counts).ravel().tolist()
            >>> run_ranks(layer, 2)
            [[1.0], [4.0, 22.0, 24.0]]
        """
        return self._plain.all_to_allv_grouped_matmul(
            x,
            weight,
            send_sizes,
            recv_sizes,
            out,
            residual,
            trans_weight,
            (scale, None, x_scale, 0, out_dtype),
            max_rows,
            return_rows,
        )

    def grouped_matmul_all_to_allv(
        self,
        x: TensorT,
        weight: TensorT,
        send_sizes: Table,
        recv_sizes: Table | None = None,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        scale: TensorT | None = None,
        x_scale: TensorT | None = None,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Multiplies the rows of this rank's experts and sends the products back.

        The way back of all_to_allv_grouped_matmul: ``out_r[i]`` is the product of the row that
        ``x_r[i]`` was there, which its expert has multiplied by its weight, ``+ residual_r``.

        Args:
            x: [sum of recv_sizes, k] the rows of this rank's experts, as
                all_to_allv_grouped_matmul() returns them.
            weight: [experts, k, n], with `trans_weight` [experts, n, k]; this rank's experts, as
                many on every rank.
            send_sizes: [ranks, experts] as on the way there: this rank's rows for each expert.
            recv_sizes: [ranks, experts] as on the way there: rows of each rank for each of this
                rank's experts. None: the ranks exchange their send_sizes first.
            trans_weight: whether an expert's weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row of the result; None: nothing.
            scale: [experts, n] of x and weight of int8; None: they are of floating point.
            x_scale: [sum of recv_sizes] float32, of each row of an x of int8; None: 1.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [sum of send_sizes, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`, in the order of the x of the way there.

        Raises:
            Error: as all_to_allv_grouped_matmul().

        Source of the semantics: CANN's aclnnGroupedMatMulAlltoAllv; ATB's LinearParallel,
        GMM_REDUCE_SCATTER_ALLTOALLVC.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x = np.array([[[1.0]], [[4.0], [22.0], [24.0]]][rank], np.float32)
            ...     weight = np.ones((1, 1, 1), np.float32)
            ...     counts = [[[1], [1]], [[0], [2]]][rank]
            ...     with collops.init() as comm:
            ...         return comm.grouped_matmul_all_to_allv(x, weight, counts).ravel().tolist()
            >>> run_ranks(layer, 2)
            [[1.0, 4.0], [22.0, 24.0]]
        """
        quant = scale, None, x_scale, 0, out_dtype
        result: TensorT = self._plain.grouped_matmul_all_to_allv(
            x, weight, send_sizes, recv_sizes, out, residual, trans_weight, quant
        )
        return result
