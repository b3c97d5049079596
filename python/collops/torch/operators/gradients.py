"""The operators' gradients: each one's is the call that goes the other way.

A gradient is that of the sum of all ranks' losses, as with torch's functional collectives. Inputs
require gradients on all ranks or on none, as the gradients are calls of all ranks, too.
"""

from __future__ import annotations

from typing import Any

import torch

from collops.errors import ErrorCode, raise_status
from collops.torch.operators.differentiable import register
from collops.torch.operators.names import communicator_of
from collops.torch.operators.product_gradients import (
    all_gather_matmul,
    all_gather_matmul_reduce_scatter,
    matmul_all_reduce,
    matmul_reduce_scatter,
    save_all_gather_matmul,
    save_all_gather_matmul_reduce_scatter,
    save_matmul_all_reduce,
    save_matmul_reduce_scatter,
)
from collops.torch.operators.shapes import rows_of

_ops = torch.ops.collops


def _save_all_gatherv(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.sizes, ctx.dim, ctx.name = inputs
    ctx.rows = x.shape[ctx.dim]


def _all_gatherv(ctx: Any, gradient: torch.Tensor) -> Any:
    if ctx.sizes is None:
        own = _ops._all_gatherv_backward(gradient, ctx.rows, ctx.dim, ctx.name)
    else:
        own = _ops.reduce_scatterv(gradient, ctx.sizes, ctx.dim, "sum", ctx.name)
    return own, None, None, None


def _save_reduce_scatterv(ctx: Any, inputs: Any, output: Any) -> None:
    x, sizes, ctx.dim, ctx.op, ctx.name = inputs
    ctx.ranks = communicator_of(ctx.name).size
    ctx.sizes = rows_of(x.shape[ctx.dim], ctx.ranks, sizes)


def _reduce_scatterv(ctx: Any, gradient: torch.Tensor) -> Any:
    _refuse_unless_linear("reduce_scatterv", ctx.op)
    whole = _ops.all_gatherv(gradient, ctx.sizes, ctx.dim, ctx.name)
    return (whole / ctx.ranks if ctx.op == "avg" else whole), None, None, None, None


def _save_all_to_allv(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.sends, ctx.receives, ctx.name = inputs


def _all_to_allv(ctx: Any, gradient: torch.Tensor) -> Any:
    if ctx.receives is None:
        own = _ops._all_to_allv_backward(gradient, ctx.sends, ctx.name)
    else:
        own = _ops.all_to_allv(gradient, ctx.receives, ctx.sends, ctx.name)
    return own, None, None, None


def _save_all_reduce(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.op, ctx.name = inputs


def _all_reduce(ctx: Any, gradient: torch.Tensor) -> Any:
    _refuse_unless_linear("all_reduce", ctx.op)
    return _ops.all_reduce(gradient, ctx.op, ctx.name), None, None


def _save_all_gatherv_after(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, ctx.sizes, ctx.name = inputs


def _all_gatherv_after(ctx: Any, gradient: torch.Tensor) -> Any:
    return _ops.reduce_scatterv(gradient, ctx.sizes, 0, "sum", ctx.name), None, None, None


def _save_all_to_allv_after(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, ctx.sends, ctx.receives, ctx.name = inputs


def _all_to_allv_after(ctx: Any, gradient: torch.Tensor) -> Any:
    return _ops.all_to_allv(gradient, ctx.receives, ctx.sends, ctx.name), *[None] * 4


def _save_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    """The gradient is refused."""


def _refuse_second(ctx: Any, gradient: torch.Tensor) -> Any:
    raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        "all_gatherv and all_to_allv without sizes have no second gradient: pass the sizes",
    )


def _refuse_unless_linear(name: str, op: str) -> None:
    if op not in ("sum", "avg"):
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f'{name}: op "{op}" has no gradient, "sum" and "avg" have: pass x.detach()',
        )


_GRADIENTS = {
    "all_gatherv": (_all_gatherv, _save_all_gatherv),
    "reduce_scatterv": (_reduce_scatterv, _save_reduce_scatterv),
    "all_to_allv": (_all_to_allv, _save_all_to_allv),
    "all_reduce": (_all_reduce, _save_all_reduce),
    "_all_gatherv_backward": (_refuse_second, _save_nothing),
    "_all_to_allv_backward": (_refuse_second, _save_nothing),
    "_all_gatherv_after": (_all_gatherv_after, _save_all_gatherv_after),
    "_all_to_allv_after": (_all_to_allv_after, _save_all_to_allv_after),
    "all_gather_matmul": (all_gather_matmul, save_all_gather_matmul),
    "matmul_reduce_scatter": (matmul_reduce_scatter, save_matmul_reduce_scatter),
    "all_gather_matmul_reduce_scatter": (
        all_gather_matmul_reduce_scatter,
        save_all_gather_matmul_reduce_scatter,
    ),
    "matmul_all_reduce": (matmul_all_reduce, save_matmul_all_reduce),
}

for _name, (_backward, _save) in _GRADIENTS.items():
    register(_name, _backward, _save)
