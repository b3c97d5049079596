"""Gradients of the products. All of them count in rows: matrices are put one below the other.

``out = sum of X_q @ weight_q``: the gradient of X_q is ``G @ weight_q.T`` and that of weight_q is
``X_q.T @ G``, where G is the gradient of the whole sum. The residual's is the sum of its own rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from collops.torch.operators.names import communicator_of
from collops.torch.operators.shapes import (
    inner_rows,
    places,
    rows_of,
    scattered_dim,
)

_ops = torch.ops.collops
_Tensor: TypeAlias = torch.Tensor


def save_all_gather_matmul(ctx: Any, inputs: Any, output: Any) -> None:
    """Keeps what the gradients of all_gather_matmul need."""
    x, weight, residual, gather_rows, ctx.trans, ctx.name = inputs
    _save(ctx, x, weight, residual)
    ranks = communicator_of(ctx.name).size
    ctx.rows = _in_rows(x, [x.shape[0]] * ranks if gather_rows is None else gather_rows)


def all_gather_matmul(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of all_gather_matmul: matmul_reduce_scatter, and X gathered again."""
    x, weight = _saved(ctx)
    g = _flat(gradient)
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        for_x = _ops.matmul_reduce_scatter(
            g, weight, None, "sum", ctx.rows, not ctx.trans, ctx.name
        )
    if ctx.needs_input_grad[1]:
        after = g if for_x is None else for_x
        whole = _ops._all_gatherv_after(x, after, ctx.rows, ctx.name)
        for_weight = _weight_gradient(ctx, whole, g)
    return *_shaped(ctx, for_x, for_weight, g), *[None] * 3


def save_matmul_reduce_scatter(ctx: Any, inputs: Any, output: Any) -> None:
    """Keeps what the gradients of matmul_reduce_scatter need."""
    x, weight, residual, ctx.op, scatter_rows, ctx.trans, ctx.name = inputs
    _save(ctx, x, weight, residual)
    ctx.ranks, dim = communicator_of(ctx.name).size, scattered_dim(x)
    rows = rows_of(x.shape[dim], ctx.ranks, scatter_rows)
    ctx.rows = rows if dim == 1 else _in_rows(x, rows)


def matmul_reduce_scatter(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul_reduce_scatter: of X, all_gather_matmul."""
    x, weight = _saved(ctx)
    own = _flat(gradient)
    g = own / ctx.ranks if ctx.op == "avg" else own
    for_x = for_weight = None
    if ctx.needs_input_grad[1]:
        # G is needed itself: it is gathered once.
        whole = _ops.all_gatherv(g, ctx.rows, 0, ctx.name)
        for_weight = _weight_gradient(ctx, x, whole)
        for_x = _times_transposed(ctx, whole, weight)
    elif ctx.needs_input_grad[0]:
        for_x = _ops.all_gather_matmul(g, weight, None, ctx.rows, not ctx.trans, ctx.name)
    return *_shaped(ctx, for_x, for_weight, own), *[None] * 4


def save_all_gather_matmul_reduce_scatter(ctx: Any, inputs: Any, output: Any) -> None:
    """Keeps what the gradients of all_gather_matmul_reduce_scatter need."""
    x, weight, residual, ag_dim, rs_dim, inner, gather_rows, scatter_rows, *rest = inputs
    ctx.trans, ctx.name = rest
    _save(ctx, x, weight, residual)
    ctx.grid = ag_dim, rs_dim, inner
    gathered = [x.shape[0]] * ag_dim if gather_rows is None else gather_rows
    ctx.gather_rows = _in_rows(x, gathered)
    ctx.scatter_rows = _in_rows(x, rows_of(sum(gathered), rs_dim, scatter_rows))


def all_gather_matmul_reduce_scatter(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of all_gather_matmul_reduce_scatter: the same with the groups exchanged."""
    x, weight = _saved(ctx)
    g = _flat(gradient)
    ag_dim, rs_dim, inner = ctx.grid
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        lists = ctx.scatter_rows, ctx.gather_rows
        for_x = _ops.all_gather_matmul_reduce_scatter(
            g, weight, None, rs_dim, ag_dim, not inner, *lists, not ctx.trans, ctx.name
        )
    if ctx.needs_input_grad[1]:
        after = g if for_x is None else for_x
        whole_x = _gather_in_grid(ctx.name, ctx.grid, x, after, ctx.gather_rows)
        swapped = rs_dim, ag_dim, not inner
        whole_g = _gather_in_grid(ctx.name, swapped, g, whole_x, ctx.scatter_rows)
        for_weight = _weight_gradient(ctx, whole_x, whole_g)
    return *_shaped(ctx, for_x, for_weight, g), *[None] * 7


def save_matmul_all_reduce(ctx: Any, inputs: Any, output: Any) -> None:
    """Keeps what the gradients of matmul_all_reduce need."""
    x, weight, residual, ctx.trans, ctx.name = inputs
    _save(ctx, x, weight, residual)


def matmul_all_reduce(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul_all_reduce: every rank's loss depends on the whole sum."""
    x, weight = _saved(ctx)
    own = _flat(gradient)
    for_x = for_weight = None
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
        g = _ops.all_reduce(own, "sum", ctx.name)
        for_x, for_weight = _times_transposed(ctx, g, weight), _weight_gradient(ctx, x, g)
    return *_shaped(ctx, for_x, for_weight, own), None, None


def _save(ctx: Any, x: _Tensor, weight: _Tensor, residual: _Tensor | None) -> None:
    ctx.save_for_backward(x, weight)
    ctx.x_shape, ctx.weight_shape = x.shape, weight.shape
    ctx.residual_shape = None if residual is None else residual.shape


def _saved(ctx: Any) -> tuple[_Tensor, _Tensor]:
    x, weight = ctx.saved_tensors
    return _flat(x), _flat(weight)


def _flat(x: _Tensor) -> _Tensor:
    # Not reshape(-1, ...), which cannot tell the rows of a tensor without elements.
    return x.flatten(0, -2)


def _in_rows(x: _Tensor, rows: Any) -> list[Any]:
    inner = inner_rows(x)
    return [count * inner for count in rows]


def _times_transposed(ctx: Any, g: _Tensor, weight: _Tensor) -> _Tensor | None:
    if not ctx.needs_input_grad[0]:
        return None
    return g @ (weight if ctx.trans else weight.T)


def _weight_gradient(ctx: Any, x: _Tensor, g: _Tensor) -> _Tensor | None:
    if not ctx.needs_input_grad[1]:
        return None
    return g.T @ x if ctx.trans else x.T @ g


def _shaped(ctx: Any, for_x: Any, for_weight: Any, own: _Tensor) -> tuple[Any, Any, Any]:
    """The gradients of x, weight and residual in their shapes; `own`: that of the result."""
    for_residual = None
    if ctx.needs_input_grad[2] and ctx.residual_shape is not None:
        for_residual = own.sum(0).reshape(ctx.residual_shape)
    return (
        None if for_x is None else for_x.reshape(ctx.x_shape),
        None if for_weight is None else for_weight.reshape(ctx.weight_shape),
        for_residual,
    )


def _gather_in_grid(
    name: str, grid: tuple[int, int, bool], x: _Tensor, after: _Tensor, rows: Any
) -> _Tensor:
    """The rows of all members of this rank's gather group, once `after` is there."""
    communicator = communicator_of(name)
    group = places(communicator.rank, *grid)[1]
    members = [places(q, *grid)[1] == group for q in range(communicator.size)]
    sends = [x.shape[0] if member else 0 for member in members]
    order = iter(rows)
    receives = [next(order) if member else 0 for member in members]
    return _ops._all_to_allv_after(x.repeat(grid[0], 1), after, sends, receives, name)
