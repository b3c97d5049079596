"""The operators that move and reduce rows, for any group; each module-level function is public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from collops.collectives.reductions import reduction_name
from collops.torch.direct import call_directly
from collops.torch.operators.names import AnyGroup, name_of
from collops.torch.operators.record import direct_group, operate
from collops.torch.operators.row_operators import values

if TYPE_CHECKING:
    from collops.tensor_types import ReduceOp


def all_gatherv(
    x: torch.Tensor,
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Gathers every rank's rows on every rank, in rank order.

    ``out = cat([x_0, x_1, ..., x_{P-1}], dim)``; the gradient of x is the sum of the ranks'
    gradients of out, in the rows of this rank: reduce_scatterv.

    Args:
        x: [..., rows, ...] this rank's rows along `dim`; rows may be 0. Any element type.
        sizes: rows of each rank, the same list on every rank; None: the ranks exchange their
            numbers of rows first, and again for the gradient.
        dim: the dimension that is gathered; negative ones count from the end.
        group: a group of torch.distributed, a communicator, a mesh of one dim, or a group's name;
            None: the default group.
        out: [..., sum of sizes, ...] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_gatherv().

    Source of the semantics: MPI_Allgatherv; torch.distributed.all_gather for the gradient.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def gather(rank):
        ...     with collops.init() as comm:
        ...         x = torch.full((rank + 1,), float(rank), requires_grad=True)
        ...         out = collops.torch.all_gatherv(x, [1, 2], group=comm)
        ...         (out * (rank + 1)).sum().backward()
        ...         return out.tolist(), x.grad.tolist()
        >>> run_ranks(gather, 2)
        [([0.0, 1.0, 1.0], [3.0]), ([0.0, 1.0, 1.0], [3.0, 3.0])]
    """
    if (direct := direct_group(x, group)) is not None:
        return call_directly(direct, "all_gatherv", x, values(x), sizes, dim, out)
    result: torch.Tensor = operate("all_gatherv", x, sizes, dim, name_of(group), out=out)
    return result


def reduce_scatterv(
    x: torch.Tensor,
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    op: ReduceOp = "sum",
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Reduces over the ranks and leaves each rank its rows of the result.

    ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r along dim]``; the gradient of x is the
    ranks' gradients of out, one after the other: all_gatherv. For ``"avg"`` it is divided by P.

    Args:
        x: [..., rows, ...] of the same shape on every rank.
        sizes: rows that each rank receives, the same list on every rank; None: as
            numpy.array_split divides the rows.
        dim: the dimension that is scattered; negative ones count from the end.
        op: ``"sum"``, ``"avg"``, or without a gradient ``"max"``, ``"min"``, ``"prod"``; or
            such a member of torch.distributed.ReduceOp.
        group: as for all_gatherv().
        out: [..., sizes[rank], ...] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.reduce_scatterv().
        UnsupportedError: in backward(), if `op` has no gradient.

    Source of the semantics: MPI_Reduce_scatter; torch.distributed.reduce_scatter for the gradient.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def scatter(rank):
        ...     with collops.init() as comm:
        ...         x = torch.arange(3.0, requires_grad=True)
        ...         out = collops.torch.reduce_scatterv(x, [1, 2], group=comm)
        ...         (out * (rank + 1)).sum().backward()
        ...         return out.tolist(), x.grad.tolist()
        >>> run_ranks(scatter, 2)
        [([0.0], [1.0, 2.0, 2.0]), ([2.0, 4.0], [1.0, 2.0, 2.0])]
    """
    op = reduction_name(op)
    if (direct := direct_group(x, group)) is not None:
        return call_directly(direct, "reduce_scatterv", x, values(x), sizes, dim, op, out)
    result: torch.Tensor = operate("reduce_scatterv", x, sizes, dim, op, name_of(group), out=out)
    return result


def all_to_allv(
    x: torch.Tensor,
    send_sizes: Sequence[int],
    recv_sizes: Sequence[int] | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sends different rows of x to every rank.

    ``out_r = cat([rows of x_0 for r, rows of x_1 for r, ..., rows of x_{P-1} for r])``; the
    gradients go back to the ranks that sent the rows.

    Args:
        x: [rows, ...] `send_sizes[0]` rows for rank 0, then `send_sizes[1]` for rank 1, and so on.
        send_sizes: rows for each rank, 0 included.
        recv_sizes: rows from each rank; None: the ranks exchange their send_sizes first, and again
            for the gradient.
        group: as for all_gatherv().
        out: [sum of recv_sizes, ...] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_to_allv().

    Source of the semantics: MPI_Alltoallv; torch.distributed.all_to_all_single.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def swap(rank):
        ...     with collops.init() as comm:
        ...         mine, sizes = torch.full((3,), rank), [[1, 2], [3, 0]][rank]
        ...         return collops.torch.all_to_allv(mine, sizes, group=comm).tolist()
        >>> run_ranks(swap, 2)
        [[0, 1, 1, 1], [0, 0]]
    """
    if (direct := direct_group(x, group)) is not None:
        return call_directly(direct, "all_to_allv", x, values(x), send_sizes, recv_sizes, out)
    result: torch.Tensor = operate(
        "all_to_allv", x, send_sizes, recv_sizes, name_of(group), out=out
    )
    return result


def all_reduce(
    x: torch.Tensor,
    op: ReduceOp = "sum",
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Reduces over the ranks, with the result on every rank.

    ``out = x_0 op x_1 op ... op x_{P-1}``; the gradient of x is the reduction of the ranks'
    gradients of out, as every rank's loss depends on every rank's x.

    Args:
        x: of the same shape on every rank.
        op: ``"sum"``, ``"avg"``, or without a gradient ``"max"``, ``"min"``, ``"prod"``; or
            such a member of torch.distributed.ReduceOp.
        group: as for all_gatherv().
        out: the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.all_reduce().
        UnsupportedError: in backward(), if `op` has no gradient.

    Source of the semantics: MPI_Allreduce; ``_c10d_functional.all_reduce`` for the gradient.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def total(rank):
        ...     with collops.init() as comm:
        ...         return collops.torch.all_reduce(torch.tensor([rank + 1.0]), group=comm).item()
        >>> run_ranks(total, 2)
        [3.0, 3.0]
    """
    op = reduction_name(op)
    if (direct := direct_group(x, group)) is not None:
        return call_directly(direct, "all_reduce", x, values(x), op, out)
    result: torch.Tensor = operate("all_reduce", x, op, name_of(group), out=out)
    return result
