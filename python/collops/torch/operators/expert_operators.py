"""The operators of mixtures of experts: their calls, shapes and gradients.

The routing goes from one to the next as three tensors, those of collops.MoeHandle. The gradient of
a dispatch is a combine without weights, and that of a combine a dispatch with the same routing. The
grouped products are each other's way back, and so are their gradients.
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
_GROUPED = (
    "Tensor x, Tensor weight, Tensor send_sizes, Tensor? recv_sizes, Tensor? residual, "
    "bool trans_weight, Tensor? scale, Tensor? x_scale, ScalarType? out_dtype"
)
_ROUTING = "Tensor send_sizes, Tensor recv_sizes, Tensor positions"


def _dispatch(x: Any, topk_ids: Any, num_experts: int, name: str) -> Any:
    communicator = communicator_for_call("moe_dispatch", x, name)
    rows, counts, handle = communicator.moe_dispatch(values(x), values(topk_ids), num_experts)
    return rows, counts, handle.send_sizes, handle.recv_sizes, handle.positions


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
    send_sizes, recv_sizes, positions = map(values, routing)
    return MoeHandle(send_sizes, recv_sizes, positions, group=communicator.handle)


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


def _grouped(name: str, goes_back: bool) -> Operator:
    """A grouped product: to the experts, where the rows may be limited, or back from them."""
    after = ("name",) if goes_back else ("max_rows", "name")

    def call(
        x: Any,
        weight: Any,
        sends: Any,
        receives: Any,
        residual: Any,
        trans: bool,
        scale: Any,
        x_scale: Any,
        out_dtype: Any,
        *rest: Any,
        out: Any = None,
    ) -> Any:
        words = dict(zip(after, rest, strict=True)) | {"out": out}
        given = {"residual": residual, "scale": scale, "x_scale": x_scale}
        words |= {key: values(one) for key, one in given.items() if one is not None}
        communicator = communicator_for_call(name, x, words.pop("name"))
        words |= {"trans_weight": trans, "out_dtype": out_dtype}
        return getattr(communicator, name)(values(x), values(weight), sends, receives, **words)

    def fake(
        x: _Tensor,
        weight: _Tensor,
        sends: Any,
        receives: Any,
        residual: Any,
        trans: bool,
        scale: Any,
        x_scale: Any,
        out_dtype: Any,
        *rest: Any,
    ) -> _Tensor:
        # The counts are values of tensors, so the rows are a symbol of their own.
        shape = [torch_library.get_ctx().new_dynamic_size(), weight.shape[-2 if trans else -1]]
        summed = x.dtype if x.dtype != torch.int8 else out_dtype or torch.float32
        return x.new_empty(shape, dtype=summed)

    def save(ctx: Any, inputs: Any) -> None:
        x, weight, sends, receives, residual, ctx.trans, *_, ctx.name = inputs
        ctx.num_inputs = len(inputs)
        ctx.residual_shape = None if residual is None else residual.shape
        ctx.save_for_backward(x, weight, sends, receives)

    def backward(ctx: Any, g: _Tensor) -> Any:
        needs = ctx.needs_input_grad
        if needs[6] or needs[7]:
            raise_status(
                ErrorCode.ERROR_UNSUPPORTED,
                f"{name}: scale and x_scale have no gradient: pass .detach()",
            )
        for_both: Any = [None, None]
        if needs[0] or needs[1]:
            words = goes_back, ctx.trans, needs[0], needs[1], ctx.name
            both = _ops._grouped_matmul_backward(g, *ctx.saved_tensors, *words)
            for_both = [one if need else None for one, need in zip(both, needs, strict=False)]
        for_residual = g.sum(0).reshape(ctx.residual_shape) if needs[4] else None
        return *for_both, None, None, for_residual, *[None] * (ctx.num_inputs - 5)

    schema = _GROUPED if goes_back else f"{_GROUPED}, SymInt? max_rows"
    return Operator(schema, call, fake, save, backward)


def _grouped_backward(
    gradient: Any,
    x: Any,
    weight: Any,
    sends: Any,
    receives: Any,
    went_back: bool,
    trans: bool,
    for_x: bool,
    for_weight: bool,
    name: str,
) -> Any:
    """The gradients of x and weight, in one operator: torch.compile would reorder several."""
    communicator = communicator_for_call("_grouped_matmul_backward", gradient, name)
    g, factor = values(gradient), values(weight)
    if receives is None:
        ones = [1] * communicator.size
        receives = communicator.all_to_allv(sends.to(x.device), ones, ones).cpu()
    args: Any = g, factor, sends, receives
    of_x, of_weight = x.new_empty(0), weight.new_empty(0)
    if went_back:
        of_x, g = communicator.all_to_allv_grouped_matmul(
            *args, trans_weight=not trans, return_rows=True
        )
    elif for_x:
        of_x = communicator.grouped_matmul_all_to_allv(*args, trans_weight=not trans)
    if for_weight:
        rows = x if went_back else _received(communicator, values(x), sends, receives)
        counts = receives.sum(0).tolist()
        of_weight = torch.empty_like(weight)
        for of_one, a, b in zip(of_weight, rows.split(counts), g.split(counts), strict=True):
            of_one.copy_(b.T @ a if trans else a.T @ b)
    return of_x, of_weight


def _received(communicator: Any, x: _Tensor, sends: Any, receives: Any) -> _Tensor:
    """The rows for this rank's experts, expert by expert."""
    rows = communicator.all_to_allv(x, sends.sum(1).tolist(), receives.sum(1).tolist())
    parts, experts = rows.split(receives.flatten().tolist()), receives.shape[1]
    return torch.cat([part for e in range(experts) for part in parts[e::experts]])


def _fake_grouped_backward(
    gradient: _Tensor,
    x: _Tensor,
    weight: _Tensor,
    sends: Any,
    receives: Any,
    went_back: bool,
    trans: bool,
    for_x: bool,
    for_weight: bool,
    name: str,
) -> Any:
    of_x = x.new_empty(x.shape if for_x or went_back else [0])
    return of_x, weight.new_empty(weight.shape if for_weight else [0])


def _refuse_second_grouped(ctx: Any, *gradients: Any) -> Any:
    raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        "the grouped products have no second gradient: detach the first",
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
for _name, _goes_back in (
    ("all_to_allv_grouped_matmul", False),
    ("grouped_matmul_all_to_allv", True),
):
    register(_name, _grouped(_name, _goes_back))
register(
    "_grouped_matmul_backward",
    Operator(
        "Tensor gradient, Tensor x, Tensor weight, Tensor send_sizes, Tensor? recv_sizes, "
        "bool went_back, bool trans_weight, bool for_x, bool for_weight",
        *(_grouped_backward, _fake_grouped_backward, _save_nothing, _refuse_second_grouped),
        has_out=False,
        results="(Tensor, Tensor)",
    ),
)
