"""Dispatch to experts and combine, for any group; each module-level function is public."""

from __future__ import annotations

from typing import NamedTuple

import torch

from collops.torch.operators.names import AnyGroup, check_no_gradients, name_of
from collops.torch.operators.record import operate

_ops = torch.ops.collops


class MoeRouting(NamedTuple):
    """Where the rows of a moe_dispatch() went, which moe_combine() needs.

    Attributes:
        send_counts: int64 [P, experts of a rank]: this rank's rows for each expert of each rank.
        recv_counts: int64 [P, experts of a rank]: rows of each rank for each of this rank's
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
        ...         return routing.recv_counts.tolist()
        >>> run_ranks(send, 2)
        [[[1], [1]], [[2], [2]]]
    """

    send_counts: torch.Tensor
    recv_counts: torch.Tensor
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
    if out is None:
        return operate("moe_combine", rows, topk_weights, *routing, name_of(group))
    check_no_gradients("moe_combine", name_of(group), rows, topk_weights)
    _ops.moe_combine.out(rows, topk_weights, *routing, name_of(group), out=out)
    return out
