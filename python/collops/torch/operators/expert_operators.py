"""The operators of mixtures of experts: their calls, shapes and gradients.

The routing goes from one to the next as three tensors, those of collops.MoeHandle. The gradient of
a dispatch is a combine without weights, and that of a combine a dispatch with the same routing.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import library as torch_library

from collops.collectives.moe import MoeHandle
from collops.errors import ErrorCode, raise_status
from collops.torch.operators.names import communicator_for_call, communicator_of
from collops.torch.operators.record import Operator, register
from collops.torch.operators.row_operators import values

_ops = torch.ops.collops
_Tensor: TypeAlias = torch.Tensor
_ROUTING = "Tensor send_counts, Tensor recv_counts, Tensor positions"


def _dispatch(x: Any, topk_ids: Any, num_experts: int, name: str) -> Any:
    communicator = communicator_for_call("moe_dispatch", x, name)
    rows, counts, handle = communicator.moe_dispatch(values(x), values(topk_ids), num_experts)
    return rows, counts, handle.send_counts, handle.recv_counts, handle.positions


def _fake_dispatch(x: _Tensor, topk_ids: _Tensor, num_experts: Any, name: str) -> Any:
    ranks = communicator_of(name).size
    experts = num_experts // ranks
    # What the ranks will tell each other is a symbol of its own.
    received = torch_library.get_ctx().new_dynamic_size()
    counts = [x.new_empty(size, dtype=torch.int64) for size in ([experts], *[[ranks, experts]] * 2)]
    positions = x.new_empty(topk_ids.shape, dtype=torch.int64)
    return x.new_empty([received, *x.shape[1:]]), *counts, positions


def _save_dispatch(ctx: Any, inputs_and_results: Any) -> None:
    _, _, _, ctx.name, _, _, *routing = inputs_and_results
    ctx.save_for_backward(*routing)


def _dispatch_gradient(ctx: Any, of_rows: _Tensor, *of_numbers: Any) -> Any:
    return _ops.moe_combine(of_rows, None, *ctx.saved_tensors, ctx.name), None, None, None


def _again(x: Any, sends: Any, receives: Any, positions: Any, received: int, name: str) -> Any:
    communicator = communicator_for_call("_moe_dispatch_again", x, name)
    return _sent(communicator, x, (sends, receives, positions))


def _fake_again(
    x: _Tensor, sends: Any, receives: Any, positions: Any, received: Any, name: str
) -> _Tensor:
    return x.new_empty([received, *x.shape[1:]])


def _save_again(ctx: Any, inputs: Any) -> None:
    _, *routing, _, ctx.name = inputs
    ctx.save_for_backward(*routing)


def _again_gradient(ctx: Any, gradient: _Tensor) -> Any:
    return _ops.moe_combine(gradient, None, *ctx.saved_tensors, ctx.name), *[None] * 5


def _handle(communicator: Any, routing: Any) -> MoeHandle:
    send_counts, recv_counts, positions = map(values, routing)
    return MoeHandle(send_counts, recv_counts, positions, group=communicator.handle)


def _sent(communicator: Any, x: _Tensor, routing: Any) -> Any:
    return communicator.moe_dispatch(values(x), handle=_handle(communicator, routing))[0]


def _combine(
    rows: Any,
    weights: Any,
    sends: Any,
    receives: Any,
    positions: Any,
    name: str,
    out: Any = None,
) -> Any:
    communicator = communicator_for_call("moe_combine", rows, name)
    handle = _handle(communicator, (sends, receives, positions))
    given = None if weights is None else values(weights)
    return communicator.moe_combine(values(rows), given, handle, out=out)


def _fake_combine(
    rows: _Tensor, weights: Any, sends: Any, receives: Any, positions: _Tensor, name: str
) -> _Tensor:
    return rows.new_empty([positions.shape[0], *rows.shape[1:]])


def _save_combine(ctx: Any, inputs: Any) -> None:
    *tensors, ctx.name = inputs
    ctx.save_for_backward(*tensors)


def _combine_gradient(ctx: Any, gradient: _Tensor) -> Any:
    rows, weights, *routing = ctx.saved_tensors
    if weights is None:
        own = _ops._moe_dispatch_again(gradient, *routing, rows.shape[0], ctx.name)
        return own, *[None] * 5
    both = _ops._moe_combine_backward(gradient, rows, weights, *routing, ctx.name)
    return *both, *[None] * 4


def _combine_backward(
    gradient: Any,
    rows: Any,
    weights: Any,
    sends: Any,
    receives: Any,
    positions: Any,
    name: str,
) -> Any:
    """The gradients of rows and weights, in one operator: torch.compile would reorder three."""
    communicator = communicator_for_call("_moe_combine_backward", gradient, name)
    of_tokens = _sent(communicator, gradient, (sends, receives, positions)).float()
    # A number for each row: its token and k are one dim.
    one_each = sends, receives, positions.reshape(-1, 1)
    of_rows = _sent(communicator, weights.reshape(-1, 1), one_each).float()
    products = (of_tokens * rows).sum(1, keepdim=True)
    of_weights = communicator.moe_combine(products, None, _handle(communicator, one_each))
    return (of_tokens * of_rows).to(rows.dtype), of_weights.view(weights.shape).to(weights.dtype)


def _fake_combine_backward(
    gradient: _Tensor,
    rows: _Tensor,
    weights: _Tensor,
    sends: Any,
    receives: Any,
    positions: Any,
    name: str,
) -> Any:
    return rows.new_empty(rows.shape), weights.new_empty(weights.shape)


def _save_nothing(ctx: Any, inputs: Any) -> None:
    """The gradient is refused."""


def _refuse_second(ctx: Any, *gradients: Any) -> Any:
    raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        "moe_combine with topk_weights has no second gradient: multiply the rows by them instead",
    )


register(
    "moe_dispatch",
    Operator(
        "Tensor x, Tensor topk_ids, SymInt num_experts",
        *(_dispatch, _fake_dispatch, _save_dispatch, _dispatch_gradient),
        has_out=False,
        results="(Tensor, Tensor, Tensor, Tensor, Tensor)",
    ),
)
register(
    "moe_combine",
    Operator(
        f"Tensor rows, Tensor? topk_weights, {_ROUTING}",
        *(_combine, _fake_combine, _save_combine, _combine_gradient),
    ),
)
register(
    "_moe_dispatch_again",
    Operator(
        f"Tensor x, {_ROUTING}, SymInt received",
        *(_again, _fake_again, _save_again, _again_gradient),
        has_out=False,
    ),
)
register(
    "_moe_combine_backward",
    Operator(
        f"Tensor gradient, Tensor rows, Tensor topk_weights, {_ROUTING}",
        *(_combine_backward, _fake_combine_backward, _save_nothing, _refuse_second),
        has_out=False,
        results="(Tensor, Tensor)",
    ),
)
