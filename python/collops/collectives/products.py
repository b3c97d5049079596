"""The plain level's matrix products with gathered rows and scattered sums, and of a rank alone.

All five accumulate in float32, add up the ranks' partial products in rank order, add the
residual, and round once. x and weight are float16, bfloat16 or float32, one type for all
tensors, contiguous, and each rank's own. Rows may be 0; k and n are at least 1, although numpy
accepts 0 for them. If x lies in memory of empty(), the other ranks read it in place.

An x of three dims, [matrices, rows, k], gives a result of three dims. The lists then count
matrices in place of rows, as in ATB; only matmul_reduce_scatter, if there is one matrix,
distributes its rows. The matrices of all ranks have equally many rows.

**int8**, with `scale` [n], [1, n] or [1], a number of the weight's each column or one for all:

- x and weight of int8 (W8A8): ``float32(x @ weight + bias) * scale``, and ``* x_scale[row]`` where
  that is given, in place of ``x @ weight``. The sum is int32, modulo 2^32 and so exact: the same
  bits on every machine. bias is int32, as long as scale; the result has `out_dtype`. Each rank
  scales its own product before the ranks add up; `x_scale` travels with the rows that are gathered.
- weight of int8 alone (W8A16): the weight becomes ``(float32(weight) + bias) * scale``, rounded to
  x's type. scale and bias are float32 or of x's type; with `group_size` they are
  [ceil(k / group_size), n], a row for so many elements of k.

**The same bits at every number of ranks**, with `leaves` > 0: the k columns of all ranks that add
up are cut in that many leaves, the first ``k % leaves`` of them a column longer. A leaf is summed
in float32 in ascending k by fused multiply-adds, and scaled; the leaves are added by one binary
tree, whose left part has the largest power of two of leaves below their number; then the residual
is added, and the sum rounded once. Ranks, rows, threads and instruction sets change no bit. A rank
has whole leaves: without `sum_columns` as many as numpy.array_split gives it, all equally long. A
bias of W8A8 is added to its rank's first leaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import torch

    from collops.tensor_types import DType, ReduceOp, TensorT

    Sizes: TypeAlias = Sequence[int]


@of_communicator
class Products(PlainCalls):
    """Matrix products with gathered rows and scattered sums."""

    def all_gather_matmul_reduce_scatter(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        ag_dim: int,
        rs_dim: int,
        inner_dim_is_ag: bool = True,
        gather_rows: Sizes | None = None,
        scatter_rows: Sizes | None = None,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        leaves: int = 0,
        sum_columns: Sizes | None = None,
        scale: TensorT | None = None,
        bias: TensorT | None = None,
        x_scale: TensorT | None = None,
        group_size: int = 0,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Multiplies the rows of a gather group and scatters the sum over a scatter group.

        ``S_r = sum over my scatter group of concatenate(x of its gather group) @ weight``, and
        ``out_r = (S_r + residual)[my rows]``

        The ``ag_dim * rs_dim`` ranks form a grid. With `inner_dim_is_ag` the ranks of a gather
        group are neighbours: rank r is member ``r % ag_dim`` of its gather group and member
        ``r // ag_dim`` of its scatter group. Without it the ranks of a scatter group are
        neighbours: r is member ``r // rs_dim`` of its gather group and member ``r % rs_dim`` of its
        scatter group.

        Args:
            x: [rows, k] this rank's rows; a numpy array or a torch tensor; rows may be 0.
            weight: [k, n], with `trans_weight` [n, k]; k and n are at least 1.
            ag_dim: number of ranks in a gather group.
            rs_dim: number of ranks in a scatter group.
            inner_dim_is_ag: whether the gather groups consist of neighbouring ranks; if not, the
                scatter groups do.
            gather_rows: rows of each member of my gather group; None: the ranks exchange their
                numbers of rows first.
            scatter_rows: rows that each member of my scatter group receives; None: as
                numpy.array_split divides them. Both lists have the same sum, in every group.
            trans_weight: whether the weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            leaves: not 0: the bits do not depend on the number of ranks; as the module says.
            sum_columns: k of each member of my scatter group; None: the leaves decide.
            scale: of a weight of int8; with `bias`, `x_scale` and `group_size` as the module says.
            bias: of a weight of int8; None: nothing.
            x_scale: [rows] float32, of each row of an x of int8; None: nothing.
            group_size: elements of k that share a row of scales; 0: all of them.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [my scatter_rows, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on the grid, rows, k, n or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: ATB's LinearParallel, ALL_GATHER_LINEAR_REDUCE_SCATTER.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.full((1, 2), rank, np.float32), np.ones((2, 3), np.float32)
            ...     with collops.init() as comm:
            ...         return comm.all_gather_matmul_reduce_scatter(
            ...             x, weight, ag_dim=2, rs_dim=2
            ...         ).tolist()
            >>> run_ranks(layer, 4)[0]
            [[4.0, 4.0, 4.0]]
        """
        grid = ag_dim, rs_dim, bool(inner_dim_is_ag)
        quant = scale, bias, x_scale, group_size, out_dtype
        result: TensorT = self._plain.all_gather_matmul_reduce_scatter(
            x,
            weight,
            out,
            residual,
            trans_weight,
            quant,
            leaves,
            sum_columns,
            grid,
            gather_rows,
            scatter_rows,
        )
        return result

    def all_gather_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        sizes: Sizes | None = None,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        leaves: int = 0,
        scale: TensorT | None = None,
        bias: TensorT | None = None,
        x_scale: TensorT | None = None,
        group_size: int = 0,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Multiplies the rows of all ranks by this rank's weight.

        ``out_r = concatenate([x_0, x_1, ..., x_{P-1}]) @ weight_r + residual_r``

        Args:
            x: [rows, k] this rank's rows; rows may be 0, k may not.
            weight: [k, n], with `trans_weight` [n, k]; this rank's columns of a larger one, say.
            sizes: rows of each rank, the same list on every rank; None: the ranks exchange their
                numbers of rows first.
            trans_weight: whether the weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            leaves: not 0: k is summed in so many leaves; as the module says.
            scale: of a weight of int8; with `bias`, `x_scale` and `group_size` as the module says.
            bias: of a weight of int8; None: nothing.
            x_scale: [rows] float32, of each row of an x of int8; None: nothing.
            group_size: elements of k that share a row of scales; 0: all of them.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [sum of sizes, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            Error: as all_gather_matmul_reduce_scatter().

        Source of the semantics: ATB's LinearParallel, ALL_GATHER_LINEAR.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.full((1, 2), rank, np.float32), np.eye(2, dtype=np.float32)
            ...     with collops.init() as comm:
            ...         return comm.all_gather_matmul(x, weight).tolist()
            >>> run_ranks(layer, 2)[0]
            [[0.0, 0.0], [1.0, 1.0]]
        """
        quant = scale, bias, x_scale, group_size, out_dtype
        result: TensorT = self._plain.all_gather_matmul(
            x, weight, out, residual, trans_weight, quant, leaves, sizes
        )
        return result

    def matmul_reduce_scatter(
        self,
        x: TensorT,
        weight: TensorT,
        sizes: Sizes | None = None,
        *,
        op: ReduceOp = "sum",
        trans_weight: bool = False,
        residual: TensorT | None = None,
        leaves: int = 0,
        sum_columns: Sizes | None = None,
        scale: TensorT | None = None,
        bias: TensorT | None = None,
        x_scale: TensorT | None = None,
        group_size: int = 0,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Adds up the ranks' products and leaves each rank its rows of the sum.

        ``out_r = (x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1})[my rows] + residual_r``; with
        ``op="avg"`` the sum is divided by P first.

        Args:
            x: [rows, k] of the same shape on every rank.
            weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
            sizes: rows that each rank receives; None: as numpy.array_split divides them.
            op: ``"sum"`` or ``"avg"``, which divides in float32, before the result is rounded.
            trans_weight: whether the weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            leaves: not 0: the bits do not depend on the number of ranks; as the module says.
            sum_columns: k of each rank; None: the leaves decide.
            scale: of a weight of int8; with `bias`, `x_scale` and `group_size` as the module says.
            bias: of a weight of int8; None: nothing.
            x_scale: [rows] float32, of each row of an x of int8; None: nothing.
            group_size: elements of k that share a row of scales; 0: all of them.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [sizes[rank], n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            Error: as all_gather_matmul_reduce_scatter().

        Source of the semantics: ATB's LinearParallel, LINEAR_REDUCE_SCATTER; ``op`` as in torch's
        fused_matmul_reduce_scatter.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.ones((3, 2), np.float32), np.full((2, 1), rank, np.float32)
            ...     with collops.init() as comm:
            ...         return comm.matmul_reduce_scatter(x, weight).tolist()
            >>> run_ranks(layer, 2)
            [[[2.0], [2.0]], [[2.0]]]
        """
        quant = scale, bias, x_scale, group_size, out_dtype
        result: TensorT = self._plain.matmul_reduce_scatter(
            x, weight, out, residual, trans_weight, quant, leaves, sum_columns, sizes, op
        )
        return result

    def matmul_all_reduce(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        leaves: int = 0,
        sum_columns: Sizes | None = None,
        scale: TensorT | None = None,
        bias: TensorT | None = None,
        x_scale: TensorT | None = None,
        group_size: int = 0,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Adds up the ranks' products on every rank.

        ``out = x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1} + residual``

        Args:
            x: [rows, k] of the same shape on every rank.
            weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
            trans_weight: whether the weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            leaves: not 0: the bits do not depend on the number of ranks; as the module says.
            sum_columns: k of each rank; None: the leaves decide.
            scale: of a weight of int8; with `bias`, `x_scale` and `group_size` as the module says.
            bias: of a weight of int8; None: nothing.
            x_scale: [rows] float32, of each row of an x of int8; None: nothing.
            group_size: elements of k that share a row of scales; 0: all of them.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [rows, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            Error: as all_gather_matmul_reduce_scatter().

        Source of the semantics: ATB's LinearParallel, LINEAR_ALL_REDUCE.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def layer(rank):
            ...     x, weight = np.ones((1, 2), np.float32), np.full((2, 1), rank, np.float32)
            ...     with collops.init() as comm:
            ...         return comm.matmul_all_reduce(x, weight).tolist()
            >>> run_ranks(layer, 2)
            [[[2.0]], [[2.0]]]
        """
        quant = scale, bias, x_scale, group_size, out_dtype
        result: TensorT = self._plain.matmul_all_reduce(
            x, weight, out, residual, trans_weight, quant, leaves, sum_columns
        )
        return result

    def matmul(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        leaves: int = 0,
        scale: TensorT | None = None,
        bias: TensorT | None = None,
        x_scale: TensorT | None = None,
        group_size: int = 0,
        out_dtype: DType | torch.dtype | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        """Multiplies on this rank alone, with the bits of the other products.

        ``out = x @ weight + residual``; it sends nothing and waits for no one, so that ranks may
        call it as often as they like.

        Args:
            x: [rows, k]; rows may be 0, k may not.
            weight: [k, n], with `trans_weight` [n, k].
            trans_weight: whether the weight is stored as [n, k].
            residual: [n] or [1, n] added once to every row; None: nothing.
            leaves: not 0: k is summed in so many leaves; as the module says.
            scale: of a weight of int8; with `bias`, `x_scale` and `group_size` as the module says.
            bias: of a weight of int8; None: nothing.
            x_scale: [rows] float32, of each row of an x of int8; None: nothing.
            group_size: elements of k that share a row of scales; 0: all of them.
            out_dtype: of an x of int8, ``"float32"`` (also None), float16 or bfloat16.
            out: [rows, n] the result's memory; None: new memory of x's kind.

        Returns:
            `out`.

        Raises:
            ArgumentError: the arguments are wrong; the other ranks do not hear of it.

        Source of the semantics: ATB's LinearParallel, PURE_LINEAR.

        Example:
            >>> import collops, numpy as np
            >>> x, weight = np.ones((1, 2), np.float32), np.ones((2, 3), np.float32)
            >>> with collops.init(rank=0, rank_size=1) as comm:
            ...     comm.matmul(x, weight, leaves=2).tolist()
            [[2.0, 2.0, 2.0]]
        """
        quant = scale, bias, x_scale, group_size, out_dtype
        result: TensorT = self._plain.matmul(x, weight, out, residual, trans_weight, quant, leaves)
        return result
