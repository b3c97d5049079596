"""The plain level's products before or after an all-to-all, for sequence parallelism, on the CPU.

Both accumulate in float32 and round once. x and weight are float16, bfloat16 or float32, one type
for all tensors, contiguous, and each rank's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from collops.tensor_types import TensorT


@of_communicator
class ExchangedProducts(PlainCalls):
    """Products before and after an exchange of blocks of one size."""

    @overload
    def all_to_all_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        residual: TensorT | None = None,
        trans_weight: bool = False,
        return_x: Literal[False] = False,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def all_to_all_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        residual: TensorT | None = None,
        trans_weight: bool = False,
        return_x: Literal[True],
        out: TensorT | None = None,
    ) -> tuple[TensorT, TensorT]: ...

    def all_to_all_matmul(
        self,
        x: Any,
        weight: Any,
        *,
        residual: Any = None,
        trans_weight: bool = False,
        return_x: bool = False,
        out: Any = None,
    ) -> Any:
        """Exchanges columns for rows and multiplies what this rank gets.

        ``X_r = concatenate([rows of x_q for r, for q in ranks], axis=1)``, and
        ``out_r = X_r @ weight_r + residual_r``

        Args:
            x: [rows, h] of one shape on every rank: `rows / P` rows for rank 0, then as many for
                rank 1, and so on; rows is a multiple of P and may be 0.
            weight: [P * h, n], with `trans_weight` [n, P * h].
            residual: [n] or [1, n] added once to every row; None: nothing.
            trans_weight: whether the weight is stored as [n, P * h].
            return_x: whether to return X_r, too.
            out: [rows / P, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`; with `return_x` also X_r [rows / P, P * h].

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on x's shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: CANN's aclnnAlltoAllMatmul.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.array([[1.0], [2.0]], "f4") + 10 * rank, np.eye(2, dtype="f4")
            ...     with collops.init() as comm:
            ...         return comm.all_to_all_matmul(x, weight).tolist()
            >>> run_ranks(layer, 2)
            [[[1.0, 11.0]], [[2.0, 12.0]]]
        """
        return self._plain.all_to_all_matmul(x, weight, out, residual, trans_weight, return_x)

    def matmul_all_to_all(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        residual: TensorT | None = None,
        trans_weight: bool = False,
        out: TensorT | None = None,
    ) -> TensorT:
        """Multiplies and exchanges rows for columns of the product.

        ``out_r = concatenate([x_q @ (the columns of weight_q for r) for q in ranks], axis=0) +
        residual_r``

        Args:
            x: [rows, k], as many rows on every rank; rows may be 0.
            weight: [k, n], with `trans_weight` [n, k]; n is a multiple of P, the same on every
                rank. The first `n / P` columns are for rank 0, and so on.
            residual: [n / P] or [1, n / P] added once to every row, on all ranks or on none; None:
                nothing. With it products travel as float32.
            trans_weight: whether the weight is stored as [n, k].
            out: [P * rows, n / P] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on rows, n, dtype, or whether there is a residual,
                or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: CANN's aclnnMatmulAlltoAll.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.array([[rank + 1.0]], "f4"), np.array([[1.0, 10.0]], "f4")
            ...     with collops.init() as comm:
            ...         return comm.matmul_all_to_all(x, weight).tolist()
            >>> run_ranks(layer, 2)
            [[[1.0], [2.0]], [[10.0], [20.0]]]
        """
        result: TensorT = self._plain.matmul_all_to_all(x, weight, out, residual, trans_weight)
        return result
