"""The plain level's products whose rows are gathered and whose sums are scattered.

All four accumulate in float32, add up the ranks' partial products in rank order, add the
residual, and round once. x and weight are float16, bfloat16 or float32, one type for all
tensors, contiguous, and each rank's own. Rows may be 0; k and n are at least 1, while numpy
takes 0 for them, too. Where x lies in memory of empty(), the others read it in place.

An x of three dims, [matrices, rows, k], gives a result of three: where a list says rows, it
counts matrices then, as ATB does. matmul_reduce_scatter alone shares out the rows where there
is one matrix. Other ranks' matrices have as many rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.atb.linear_parallel import ParallelType

if TYPE_CHECKING:
    from collops.collectives.linear_parallel import LinearParallel

_NO_GRID = (0, 0, True)


def all_gather_matmul_reduce_scatter(
    linear: LinearParallel, x: Any, weight: Any, grid: tuple[int, int, bool], **options: Any
) -> Any:
    """Multiplies the rows of a gather group and shares out the sum over a scatter group.

    ``S_r = sum over my scatter group of concatenate(x of its gather group) @ weight``, and
    ``out_r = (S_r + residual)[my rows]``

    The ``ag_dim * rs_dim`` ranks form a grid. With `inner_dim_is_ag` the ranks of a gather
    group are neighbours: r stands at place ``r % ag_dim`` of its gather group and at place
    ``r // ag_dim`` of its scatter group. Without, those of a scatter group are: ``r // rs_dim``
    and ``r % rs_dim``.

    Args:
        x: [rows, k] this rank's rows; a numpy array or a torch tensor; rows may be 0.
        weight: [k, n], with `trans_weight` [n, k]; k and n are at least 1.
        ag_dim: ranks that gather from each other.
        rs_dim: ranks that add up with each other.
        inner_dim_is_ag: which groups are made of neighbouring ranks.
        gather_rows: rows of each member of my gather group; None: all have as many as x.
        scatter_rows: rows that each member of my scatter group receives; None: shared out as
            numpy.array_split does. Both lists have the same sum, in every group.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        out: [my scatter_rows, n] the result's memory; None: new memory of x's kind.

    Returns:
        `out`.

    Raises:
        ArgumentError: this rank's arguments are wrong; the other ranks are told.
        RankMismatchError: the ranks disagree on the grid, rows, k, n or dtype, or one refused.
        RankTimeoutError, PeerLostError, AbortedError: a rank did not come, died or gave up.

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
    kind = ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER
    return linear(kind, x, weight, grid, **options)


def all_gather_matmul(linear: LinearParallel, x: Any, weight: Any, **options: Any) -> Any:
    """Multiplies the rows of all ranks by this rank's weight.

    ``out_r = concatenate([x_0, x_1, ..., x_{P-1}]) @ weight_r + residual_r``

    Args:
        x: [rows, k] this rank's rows; rows may be 0, k may not.
        weight: [k, n], with `trans_weight` [n, k]; this rank's columns of a larger one, say.
        gather_rows: rows of each rank; None: all have as many as x.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        out: [sum of gather_rows, n] the result's memory; None: new memory of x's kind.

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
    return linear(ParallelType.ALL_GATHER_LINEAR, x, weight, _NO_GRID, **options)


def matmul_reduce_scatter(linear: LinearParallel, x: Any, weight: Any, **options: Any) -> Any:
    """Adds up the ranks' products and leaves each rank its rows of the sum.

    ``out_r = (x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1})[my rows] + residual_r``; with
    ``op="avg"`` the sum is divided by P first.

    Args:
        x: [rows, k] of the same shape on every rank.
        weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
        op: ``"sum"`` or ``"avg"``, which divides in float32, before the one rounding.
        scatter_rows: rows that each rank receives; None: as numpy.array_split shares them out.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        out: [scatter_rows[rank], n] the result's memory; None: new memory of x's kind.

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
    return linear(ParallelType.LINEAR_REDUCE_SCATTER, x, weight, _NO_GRID, **options)


def matmul_all_reduce(linear: LinearParallel, x: Any, weight: Any, **options: Any) -> Any:
    """Adds up the ranks' products on every rank.

    ``out = x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1} + residual``

    Args:
        x: [rows, k] of the same shape on every rank.
        weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
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
    return linear(ParallelType.LINEAR_ALL_REDUCE, x, weight, _NO_GRID, **options)
