"""The operators that multiply and move rows in one call, for any group.

The gradients of their inputs are those of the sum of all ranks' losses. A rank's residual gets the
gradient of this rank's rows.

**The same bits at every number of ranks**, with `leaves` > 0, as collops.Communicator's methods
say. The gradients are products with leaves, too: that of x is a sum over n, those of the weight
and the residual are sums over the rows. Where a rank has all that is summed, there are as many
leaves, or one for each number if there are fewer. The gradient of an x that was gathered is a sum
over the n of all ranks, in as many leaves, of which all ranks have equally many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from collops.collectives.reductions import reduction_name
from collops.torch.operators.names import AnyGroup, name_of
from collops.torch.operators.product_operators import told_group_rows
from collops.torch.operators.record import operate
from collops.torch.operators.row_operators import told_rows

if TYPE_CHECKING:
    from collops.tensor_types import ReduceOp


def all_gather_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    sizes: Sequence[int] | None = None,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    leaves: int = 0,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiplies the rows of all ranks by this rank's weight.

    ``out_r = cat([x_0, x_1, ..., x_{P-1}]) @ weight_r + residual_r``; the gradient of x is
    matmul_reduce_scatter of that of out and the transposed weight.

    Args:
        x: [rows, k] or [matrices, rows, k] this rank's; float16, bfloat16 or float32.
        weight: [k, n], with `trans_weight` [n, k]; this rank's columns of a larger one, say.
        sizes: rows (of three dims: matrices) of each rank, the same list on every rank; None: the
            ranks exchange their numbers of rows first.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        leaves: not 0: the bits do not depend on the number of ranks; as the module says.
        group: a group of torch.distributed, a communicator, a mesh of one dim, or a group's name;
            None: the default group.
        out: [sum of sizes, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_gather_matmul().

    Source of the semantics: ATB's LinearParallel, ALL_GATHER_LINEAR.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x, weight = torch.full((1, 2), float(rank)), torch.eye(2)
        ...     with collops.init() as comm:
        ...         return collops.torch.all_gather_matmul(x, weight, group=comm).tolist()
        >>> run_ranks(layer, 2)[0]
        [[0.0, 0.0], [1.0, 1.0]]
    """
    group_name = name_of(group)
    rows = told_rows(x, group_name) if sizes is None else sizes
    args: tuple[Any, ...] = x, weight, residual, rows, trans_weight, group_name
    if leaves:
        args += (leaves,)
    result: torch.Tensor = operate("all_gather_matmul", *args, out=out)
    return result


def matmul_reduce_scatter(
    x: torch.Tensor,
    weight: torch.Tensor,
    sizes: Sequence[int] | None = None,
    *,
    op: ReduceOp = "sum",
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    leaves: int = 0,
    sum_columns: Sequence[int] | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Adds up the ranks' products and leaves each rank its rows of the sum.

    ``out_r = (x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1})[my rows] + residual_r``; the gradient
    of x is all_gather_matmul of that of out and the transposed weight.

    Args:
        x: [rows, k] or [matrices, rows, k] of the same shape on every rank.
        weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
        sizes: rows that each rank receives, the same list on every rank; None: as
            numpy.array_split divides them.
        op: ``"sum"`` or ``"avg"``, which divides the sum by P; or torch.distributed.ReduceOp's.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        leaves: not 0: the bits do not depend on the number of ranks; as the module says.
        sum_columns: k of each rank; None: the leaves decide.
        group: as for all_gather_matmul().
        out: [sizes[rank], n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.matmul_reduce_scatter().

    Source of the semantics: ATB's LinearParallel, LINEAR_REDUCE_SCATTER.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x, weight = torch.ones(3, 2), torch.full((2, 1), float(rank))
        ...     with collops.init() as comm:
        ...         return collops.torch.matmul_reduce_scatter(x, weight, group=comm).tolist()
        >>> run_ranks(layer, 2)
        [[[2.0], [2.0]], [[2.0]]]
    """
    word = reduction_name(op)
    group_name = name_of(group)
    args: tuple[Any, ...] = x, weight, residual, word, sizes, trans_weight, group_name
    if leaves or sum_columns is not None:
        args += (leaves, sum_columns)
    result: torch.Tensor = operate("matmul_reduce_scatter", *args, out=out)
    return result


def all_gather_matmul_reduce_scatter(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    ag_dim: int,
    rs_dim: int,
    inner_dim_is_ag: bool = True,
    gather_rows: Sequence[int] | None = None,
    scatter_rows: Sequence[int] | None = None,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    leaves: int = 0,
    sum_columns: Sequence[int] | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiplies the rows of a gather group and scatters the sum over a scatter group.

    ``S_r = sum over my scatter group of cat(x of its gather group) @ weight``, and
    ``out_r = (S_r + residual)[my rows]``; the gradient of x is the same call with the two groups
    exchanged and the weight transposed.

    Args:
        x: [rows, k] or [matrices, rows, k] this rank's; rows may be 0.
        weight: [k, n], with `trans_weight` [n, k].
        ag_dim: number of ranks in a gather group.
        rs_dim: number of ranks in a scatter group.
        inner_dim_is_ag: whether the gather groups consist of neighbouring ranks; if not, the
            scatter groups do.
        gather_rows: rows of each member of my gather group; None: the ranks exchange their numbers
            of rows first.
        scatter_rows: rows that each member of my scatter group receives; None: as
            numpy.array_split divides them.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        leaves: not 0: the bits do not depend on the number of ranks; as the module says.
        sum_columns: k of each member of my scatter group; None: the leaves decide.
        group: as for all_gather_matmul().
        out: [my scatter_rows, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_gather_matmul_reduce_scatter().

    Source of the semantics: ATB's LinearParallel, ALL_GATHER_LINEAR_REDUCE_SCATTER.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x, weight = torch.full((1, 2), float(rank)), torch.ones(2, 3)
        ...     with collops.init() as comm:
        ...         return collops.torch.all_gather_matmul_reduce_scatter(
        ...             x, weight, ag_dim=2, rs_dim=2, group=comm
        ...         ).tolist()
        >>> run_ranks(layer, 4)[0]
        [[4.0, 4.0, 4.0]]
    """
    grid = ag_dim, rs_dim, inner_dim_is_ag
    group_name = name_of(group)
    args: tuple[Any, ...] = (
        x,
        weight,
        residual,
        *grid,
        told_group_rows(x, group_name, grid) if gather_rows is None else gather_rows,
        scatter_rows,
        trans_weight,
        group_name,
    )
    if leaves or sum_columns is not None:
        args += (leaves, sum_columns)
    result: torch.Tensor = operate("all_gather_matmul_reduce_scatter", *args, out=out)
    return result


def matmul_all_reduce(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    leaves: int = 0,
    sum_columns: Sequence[int] | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Adds up the ranks' products on every rank.

    ``out = x_0 @ weight_0 + ... + x_{P-1} @ weight_{P-1} + residual``

    Every rank's loss depends on every rank's product. So the gradient of the sum is the sum of the
    ranks' gradients of out, and goes to all x and weights. If all ranks compute the same loss from
    out, as in tensor parallelism, divide the loss by P, or use that of one rank only. Gradients of
    out that several ranks have are added in rank order, also with leaves.

    Args:
        x: [rows, k] or [matrices, rows, k] of the same shape on every rank.
        weight: [k, n], with `trans_weight` [n, k]; this rank's rows of a larger one, say.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n], the same on every rank, added once to every row; None: nothing.
            Its gradient is that of this rank's out.
        leaves: not 0: the bits do not depend on the number of ranks; as the module says.
        sum_columns: k of each rank; None: the leaves decide.
        group: as for all_gather_matmul().
        out: [rows, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.matmul_all_reduce().

    Source of the semantics: ATB's LinearParallel, LINEAR_ALL_REDUCE; the gradient is that of
    ``_c10d_functional.all_reduce``.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x, weight = torch.ones(1, 2), torch.full((2, 1), float(rank))
        ...     with collops.init() as comm:
        ...         return collops.torch.matmul_all_reduce(x, weight, group=comm).tolist()
        >>> run_ranks(layer, 2)
        [[[2.0]], [[2.0]]]
    """
    group_name = name_of(group)
    args: tuple[Any, ...] = x, weight, residual, trans_weight, group_name
    if leaves or sum_columns is not None:
        args += (leaves, sum_columns)
    result: torch.Tensor = operate("matmul_all_reduce", *args, out=out)
    return result


def matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    leaves: int = 0,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiplies on this rank alone, with the bits of the other products.

    ``out = x @ weight + residual``; neither it nor its gradient sends anything or waits for anyone.

    Args:
        x: [rows, k] or [matrices, rows, k]; float16, bfloat16 or float32.
        weight: [k, n], with `trans_weight` [n, k].
        trans_weight: whether the weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        leaves: not 0: k is summed in so many leaves; as the module says.
        group: as for all_gather_matmul(); its threads and device multiply.
        out: [rows, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.matmul().

    Source of the semantics: ATB's LinearParallel, PURE_LINEAR.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> x, weight = torch.ones(1, 2), torch.ones(2, 3)
        >>> with collops.init(rank=0, rank_size=1) as comm:
        ...     collops.torch.matmul(x, weight, leaves=2, group=comm).tolist()
        [[2.0, 2.0, 2.0]]
    """
    group_name = name_of(group)
    args: tuple[Any, ...] = x, weight, residual, trans_weight, group_name
    if leaves:
        args += (leaves,)
    result: torch.Tensor = operate("matmul", *args, out=out)
    return result


def all_to_all_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Exchanges columns for rows and multiplies what this rank gets.

    ``X_r = cat([rows of x_q for r, for q in ranks], dim=1)``, and ``out_r = X_r @ weight_r +
    residual_r``; the gradient of x is matmul_all_to_all of that of out and the transposed weight.

    Args:
        x: [rows, h] of one shape on every rank; float16, bfloat16 or float32, on the CPU.
        weight: [P * h, n], with `trans_weight` [n, P * h].
        trans_weight: whether the weight is stored as [n, P * h].
        residual: [n] or [1, n] added once to every row; None: nothing.
        group: as for all_gather_matmul().
        out: [rows / P, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_to_all_matmul().

    Source of the semantics: Communicator.all_to_all_matmul().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x = torch.tensor([[1.0], [2.0]]) + 10 * rank
        ...     with collops.init() as comm:
        ...         return collops.torch.all_to_all_matmul(x, torch.eye(2), group=comm).tolist()
        >>> run_ranks(layer, 2)
        [[[1.0, 11.0]], [[2.0, 12.0]]]
    """
    args = x, weight, residual, trans_weight, name_of(group)
    result: torch.Tensor = operate("all_to_all_matmul", *args, out=out)
    return result


def matmul_all_to_all(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiplies and exchanges rows for columns of the product.

    ``out_r = cat([x_q @ (the columns of weight_q for r) for q in ranks]) + residual_r``; the
    gradient of x is all_to_all_matmul of that of out and the transposed weight.

    Args:
        x: [rows, k], as many rows on every rank; float16, bfloat16 or float32, on the CPU.
        weight: [k, n], with `trans_weight` [n, k]; n is a multiple of P.
        trans_weight: whether the weight is stored as [n, k].
        residual: [n / P] or [1, n / P] added once to every row, on all ranks or on none; None:
            nothing.
        group: as for all_gather_matmul().
        out: [P * rows, n / P] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.matmul_all_to_all().

    Source of the semantics: Communicator.matmul_all_to_all().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x, weight = torch.tensor([[rank + 1.0]]), torch.tensor([[1.0, 10.0]])
        ...     with collops.init() as comm:
        ...         return collops.torch.matmul_all_to_all(x, weight, group=comm).tolist()
        >>> run_ranks(layer, 2)
        [[[1.0], [2.0]], [[10.0], [20.0]]]
    """
    args = x, weight, residual, trans_weight, name_of(group)
    result: torch.Tensor = operate("matmul_all_to_all", *args, out=out)
    return result
