"""Dispatch to experts and combine, for any group; each module-level function is public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from collops.errors import ErrorCode
from collops.torch.calls import refuse
from collops.torch.operators.names import AnyGroup, communicator_of, name_of
from collops.torch.operators.record import operate

if TYPE_CHECKING:
    from typing import TypeAlias

    Table: TypeAlias = torch.Tensor | Sequence[Sequence[int]]


class MoeRouting(NamedTuple):
    """Where the rows of a moe_dispatch() went, which moe_combine() needs.

    Attributes:
        send_sizes: int64 [P, experts of a rank]: this rank's rows for each expert of each rank.
        recv_sizes: int64 [P, experts of a rank]: rows of each rank for each of this rank's
            experts.
        positions: int64 [T, K]: where the row of (token, k) stands among this rank's rows sorted by
            expert; -1: it has none.

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def send(rank):
        ...     with collops.init() as comm:
        ...         x, ids = torch.ones(2, 1), torch.tensor([[0, 1], [1, -1]])
        ...         routing = collops.torch.moe_dispatch(x, ids, 2, group=comm)[2]
        ...         return routing.recv_sizes.tolist()
        >>> run_ranks(send, 2)
        [[[1], [1]], [[2], [2]]]
    """

    send_sizes: torch.Tensor
    recv_sizes: torch.Tensor
    positions: torch.Tensor


def moe_dispatch(
    x: torch.Tensor, topk_ids: torch.Tensor, num_experts: int, group: AnyGroup = None
) -> tuple[torch.Tensor, torch.Tensor, MoeRouting]:
    """Sends every token to the ranks of its experts.

    As Communicator.moe_dispatch(); the gradient of x[t] is the sum of those of its rows, in
    float32, rounded once.

    Args:
        x: [T, hidden] this rank's tokens, of any element type; T may be 0.
        topk_ids: int32 or int64 [T, K]: the experts of each token, -1 for none.
        num_experts: of all ranks, a multiple of P.
        group: a group of torch.distributed, a communicator, a mesh of one dim, or a group's name;
            None: the default group.

    Returns:
        ``(rows, counts, routing)``: rows [R, hidden], expert by expert; counts int64 [experts of a
        rank], of sum R; and what moe_combine() takes. In compiled code R is a symbol.

    Raises:
        Error: as Communicator.moe_dispatch().

    Source of the semantics: Communicator.moe_dispatch().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def send(rank):
        ...     with collops.init() as comm:
        ...         x = torch.tensor([[10.0 * rank], [10.0 * rank + 1]], requires_grad=True)
        ...         ids = torch.tensor([[0, 1], [1, -1]])
        ...         rows, counts, _ = collops.torch.moe_dispatch(x, ids, 2, group=comm)
        ...         rows.sum().backward()
        ...         return rows[:, 0].tolist(), counts.tolist(), x.grad[:, 0].tolist()
        >>> run_ranks(send, 2)
        [([0.0, 10.0], [2], [2.0, 1.0]), ([0.0, 1.0, 10.0, 11.0], [4], [2.0, 1.0])]
    """
    rows, counts, *routing = operate("moe_dispatch", x, topk_ids, num_experts, name_of(group))
    return rows, counts, MoeRouting(*routing)


def moe_combine(
    rows: torch.Tensor,
    topk_weights: torch.Tensor | None,
    routing: MoeRouting,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Brings the experts' rows back to their tokens and adds them up.

    ``y[t] = sum over k of topk_weights[t, k] * row of (t, k)``, as Communicator.moe_combine(); rows
    and topk_weights have gradients.

    Args:
        rows: [R, hidden] in the order of moe_dispatch(): float32, float16 or bfloat16.
        topk_weights: [T, K] float32, float16 or bfloat16; None: all are 1.
        routing: what the dispatch returned.
        group: as for moe_dispatch().
        out: [T, hidden] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor.

    Raises:
        Error: as Communicator.moe_combine().

    Source of the semantics: Communicator.moe_combine().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def there_and_back(rank):
        ...     with collops.init() as comm:
        ...         x, ids = torch.ones(1, 2), torch.tensor([[0, 1]])
        ...         rows, _, routing = collops.torch.moe_dispatch(x, ids, 2, group=comm)
        ...         weights = torch.tensor([[0.25, 0.5]], requires_grad=True)
        ...         y = collops.torch.moe_combine(rows * (rank + 1), weights, routing, group=comm)
        ...         y.sum().backward()
        ...         return y.tolist(), weights.grad.tolist()
        >>> run_ranks(there_and_back, 2)[0]
        ([[1.25, 1.25]], [[2.0, 4.0]])
    """
    result: torch.Tensor = operate(
        "moe_combine", rows, topk_weights, *routing, name_of(group), out=out
    )
    return result


def all_to_allv_grouped_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    send_sizes: Table,
    recv_sizes: Table | None = None,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    x_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    max_rows: int | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sends rows to the experts of all ranks and multiplies what this rank's experts get.

    As Communicator.all_to_allv_grouped_matmul(). x, weight and residual have gradients: that of x
    comes back by grouped_matmul_all_to_allv(), and for that of the weight x travels again.

    Args:
        x: [rows, k] this rank's rows, sorted by rank and then by expert.
        weight: [experts, k, n], with `trans_weight` [experts, n, k]; this rank's experts.
        send_sizes: [ranks, experts] rows for each expert of each rank, such as a routing's; on the
            CPU.
        recv_sizes: [ranks, experts] rows from each rank for each of this rank's experts, on all
            ranks or on none; None: the ranks exchange their send_sizes first.
        trans_weight: whether an expert's weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row; None: nothing.
        scale: [experts, n] of x and weight of int8; None: they are of floating point.
        x_scale: [rows] float32, of each row of an x of int8; None: 1.
        out_dtype: of an x of int8, float32 (also None), float16 or bfloat16.
        max_rows: the most rows that this rank takes; more are an error on all ranks.
        group: as for moe_dispatch().
        out: [sum of recv_sizes, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor; in compiled code its rows are a symbol.

    Raises:
        Error: as Communicator.all_to_allv_grouped_matmul().

    Source of the semantics: Communicator.all_to_allv_grouped_matmul().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x = torch.tensor([[1.0], [2.0]]) + 10 * rank
        ...     weight, counts = torch.full((1, 1, 1), rank + 1.0), [[[1], [1]], [[0], [2]]][rank]
        ...     with collops.init() as comm:
        ...         y = collops.torch.all_to_allv_grouped_matmul(x, weight, counts, group=comm)
        ...         return y.flatten().tolist()
        >>> run_ranks(layer, 2)
        [[1.0], [4.0, 22.0, 24.0]]
    """
    name, of = "all_to_allv_grouped_matmul", name_of(group)
    tables = _tables(name, x, send_sizes, recv_sizes, of)
    quant = scale, x_scale, out_dtype, max_rows
    return _grouped(name, (x, weight, *tables, residual, trans_weight, *quant, of), out)


def grouped_matmul_all_to_allv(
    x: torch.Tensor,
    weight: torch.Tensor,
    send_sizes: Table,
    recv_sizes: Table | None = None,
    *,
    trans_weight: bool = False,
    residual: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    x_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    group: AnyGroup = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiplies the rows of this rank's experts and sends the products back.

    The way back of all_to_allv_grouped_matmul(), as Communicator.grouped_matmul_all_to_allv(). x,
    weight and residual have gradients.

    Args:
        x: [sum of recv_sizes, k] the rows of this rank's experts.
        weight: [experts, k, n], with `trans_weight` [experts, n, k]; this rank's experts.
        send_sizes: [ranks, experts] as on the way there; on the CPU.
        recv_sizes: [ranks, experts] as on the way there.
        trans_weight: whether an expert's weight is stored as [n, k].
        residual: [n] or [1, n] added once to every row of the result; None: nothing.
        scale: [experts, n] of x and weight of int8; None: they are of floating point.
        x_scale: [sum of recv_sizes] float32, of each row of an x of int8; None: 1.
        out_dtype: of an x of int8, float32 (also None), float16 or bfloat16.
        group: as for moe_dispatch().
        out: [sum of send_sizes, n] the result's memory; the call then has no gradient.

    Returns:
        `out`, or a new tensor; in compiled code its rows are a symbol.

    Raises:
        Error: as Communicator.grouped_matmul_all_to_allv().

    Source of the semantics: Communicator.grouped_matmul_all_to_allv().

    Example:
        >>> import torch
        >>> import collops, collops.torch
        >>> from collops.testing import run_ranks
        >>> def layer(rank):
        ...     x = torch.tensor([[[1.0]], [[4.0], [22.0], [24.0]]][rank])
        ...     weight, counts = torch.ones(1, 1, 1), [[[1], [1]], [[0], [2]]][rank]
        ...     with collops.init() as comm:
        ...         y = collops.torch.grouped_matmul_all_to_allv(x, weight, counts, group=comm)
        ...         return y.flatten().tolist()
        >>> run_ranks(layer, 2)
        [[1.0, 4.0], [22.0, 24.0]]
    """
    name, of = "grouped_matmul_all_to_allv", name_of(group)
    tables = _tables(name, x, send_sizes, recv_sizes, of)
    quant = scale, x_scale, out_dtype
    return _grouped(name, (x, weight, *tables, residual, trans_weight, *quant, of), out)


def _grouped(name: str, args: Any, out: torch.Tensor | None) -> torch.Tensor:
    result: torch.Tensor = operate(name, *args, out=out)
    return result


def _tables(name: str, x: torch.Tensor, sends: Any, receives: Any, group: str) -> list[Any]:
    """Counts as an operator takes them."""
    tables = []
    for which, counts in (("send_sizes", sends), ("recv_sizes", receives)):
        try:
            given = counts is None or isinstance(counts, torch.Tensor)
            tables.append(counts if given else torch.tensor(counts))
        except (TypeError, ValueError):  # which the other ranks hear of
            refuse(
                communicator_of(group, x.device),
                name,
                ErrorCode.ERROR_INVALID_PARAM,
                f"{name}: {which} must be whole numbers [ranks, experts], a line per rank, got "
                f"{counts}",
            )
    return tables
