"""The operators that multiply and move rows: their calls, shapes and gradients.

All gradients count in rows: matrices are put one below the other. ``out = sum of X_q @ weight_q``:
the gradient of X_q is ``G @ weight_q.T`` and that of weight_q is ``X_q.T @ G``, where G is the
gradient of the whole sum. The residual's is the sum of its own rows.

Calls with leaves have gradients with leaves: as many over the n of all ranks that gathered; over
rows or an n that a rank has as a whole as many, or one for each number if there are fewer.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from collops.errors import ErrorCode
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.operators.names import communicator_for_call, communicator_of
from collops.torch.operators.record import Operator, register
from collops.torch.operators.row_operators import (
    own_rows,
    rows_of,
    told_rows,
    values,
    with_rows,
)
from collops.torch.reductions import averages_apart

_ops = torch.ops.collops
_Tensor: TypeAlias = torch.Tensor
_WEIGHT = "Tensor x, Tensor weight, Tensor? residual"
_GRID = "int ag_dim, int rs_dim, bool inner_dim_is_ag"
_LEAVES = "int leaves=0"
_SUM_COLUMNS = "SymInt[]? sum_columns=None"


def _columns(weight: torch.Tensor, trans_weight: bool) -> Any:
    """n of a weight [k, n], with `trans_weight` [n, k]."""
    return weight.shape[-2 if trans_weight else -1]


def _inner_rows(x: torch.Tensor) -> Any:
    """Rows that stand for one entry of a list of rows: of an x of three dims, those of a matrix."""
    return x.shape[1] if x.ndim == 3 else 1


def _scattered_dim(x: torch.Tensor) -> int:
    """The dim that matmul_reduce_scatter shares out: rows where there is one matrix."""
    return 1 if x.ndim == 3 and x.shape[0] == 1 else 0


def _places(rank: int, ag_dim: int, rs_dim: int, inner_dim_is_ag: bool) -> tuple[int, int]:
    """A rank's _places in its gather group and in its scatter group."""
    ag_dim, rs_dim = max(ag_dim, 1), max(rs_dim, 1)
    if inner_dim_is_ag:
        return rank % ag_dim, rank // ag_dim
    return rank // rs_dim, rank % rs_dim


def _optional(residual: Any) -> Any:
    return None if residual is None else values(residual)


def _save(
    ctx: Any,
    x: _Tensor,
    weight: _Tensor,
    residual: _Tensor | None,
    leaves: int = 0,
    sum_columns: Any = None,
) -> None:
    ctx.save_for_backward(x, weight)
    ctx.leaves, ctx.sum_columns = leaves, sum_columns
    ctx.x_shape, ctx.weight_shape = x.shape, weight.shape
    ctx.residual_shape = None if residual is None else residual.shape


def _options(ctx: Any) -> tuple[int, ...]:
    """Those of a call over n, of which all ranks have as many columns."""
    return (ctx.leaves,) if ctx.leaves else ()


def _saved(ctx: Any) -> tuple[_Tensor, _Tensor]:
    x, weight = ctx.saved_tensors
    return _flat(x), _flat(weight)


def _flat(x: _Tensor) -> _Tensor:
    # Not reshape(-1, ...), which cannot tell the rows of a tensor without elements.
    return x.flatten(0, -2)


def _in_rows(x: _Tensor, rows: Any) -> list[Any]:
    inner = _inner_rows(x)
    return [count * inner for count in rows]


def _times_transposed(ctx: Any, g: _Tensor, weight: _Tensor) -> _Tensor | None:
    if not ctx.needs_input_grad[0]:
        return None
    if ctx.leaves:
        return _ops._matmul_in_leaves(g, weight, not ctx.trans, ctx.leaves, ctx.name)
    return g @ (weight if ctx.trans else weight.T)


def _weight_gradient(ctx: Any, x: _Tensor, g: _Tensor) -> _Tensor | None:
    if not ctx.needs_input_grad[1]:
        return None
    if ctx.leaves:
        first, second = (g, x) if ctx.trans else (x, g)
        return _ops._matmul_in_leaves(first.T, second, False, ctx.leaves, ctx.name)
    return g.T @ x if ctx.trans else x.T @ g


def _sum_of_rows(ctx: Any, rows: _Tensor) -> _Tensor:
    if not ctx.leaves:
        return rows.sum(0)
    ones = rows.new_ones(1, rows.shape[0])
    return _ops._matmul_in_leaves(ones, rows, False, ctx.leaves, ctx.name)


def _shaped(ctx: Any, for_x: Any, for_weight: Any, own: _Tensor) -> tuple[Any, Any, Any]:
    """The gradients of x, weight and residual in their shapes; `own`: that of the result."""
    for_residual = None
    if ctx.needs_input_grad[2] and ctx.residual_shape is not None:
        for_residual = _sum_of_rows(ctx, own).reshape(ctx.residual_shape)
    return (
        None if for_x is None else for_x.reshape(ctx.x_shape),
        None if for_weight is None else for_weight.reshape(ctx.weight_shape),
        for_residual,
    )


@break_graphs
def told_group_rows(x: _Tensor, name: str, grid: tuple[int, int, bool]) -> list[int]:
    """The rows of x on every member of this rank's gather group."""
    every, group = told_rows(x, name), _places(communicator_of(name).rank, *grid)[1]
    return [rows for rank, rows in enumerate(every) if _places(rank, *grid)[1] == group]


def _gather_in_grid(
    name: str, grid: tuple[int, int, bool], x: _Tensor, after: _Tensor, rows: Any
) -> _Tensor:
    """The rows of all members of this rank's gather group, once `after` is there."""
    communicator = communicator_of(name)
    group = _places(communicator.rank, *grid)[1]
    members = [_places(q, *grid)[1] == group for q in range(communicator.size)]
    sends = [x.shape[0] if member else 0 for member in members]
    order = iter(rows)
    receives = [next(order) if member else 0 for member in members]
    return _ops._all_to_allv_after(x.repeat(grid[0], 1), after, sends, receives, name)


def _all_gather_matmul(
    x: Any,
    weight: Any,
    residual: Any,
    gather_rows: Any,
    trans: bool,
    name: str,
    leaves: int = 0,
    out: Any = None,
) -> Any:
    return communicator_for_call("all_gather_matmul", x, name).all_gather_matmul(
        values(x),
        values(weight),
        gather_rows,
        trans_weight=trans,
        residual=_optional(residual),
        leaves=leaves,
        out=out,
    )


def _fake_all_gather_matmul(
    x: _Tensor,
    weight: _Tensor,
    residual: Any,
    gather_rows: Any,
    trans: bool,
    name: str,
    *options: Any,
) -> _Tensor:
    return x.new_empty([sum(gather_rows), *x.shape[1:-1], _columns(weight, trans)])


def _save_all_gather_matmul(ctx: Any, inputs: Any) -> None:
    x, weight, residual, gather_rows, ctx.trans, ctx.name, *options = inputs
    _save(ctx, x, weight, residual, *options)
    ctx.rows = _in_rows(x, gather_rows)


def _all_gather_matmul_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of all_gather_matmul: matmul_reduce_scatter, and X gathered again."""
    x, weight = _saved(ctx)
    g = _flat(gradient)
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        options = _options(ctx)
        for_x = _ops.matmul_reduce_scatter(
            g, weight, None, "sum", ctx.rows, not ctx.trans, ctx.name, *options
        )
    if ctx.needs_input_grad[1]:
        after = g if for_x is None else for_x
        whole = _ops._all_gatherv_after(x, after, ctx.rows, ctx.name)
        for_weight = _weight_gradient(ctx, whole, g)
    return *_shaped(ctx, for_x, for_weight, g), *[None] * 4


def _matmul_reduce_scatter(
    x: Any,
    weight: Any,
    residual: Any,
    op: str,
    scatter_rows: Any,
    trans: bool,
    name: str,
    leaves: int = 0,
    sum_columns: Any = None,
    out: Any = None,
) -> Any:
    communicator, averages = (
        communicator_for_call("matmul_reduce_scatter", x, name),
        averages_apart(x, op, of_products=True),
    )
    total = communicator.matmul_reduce_scatter(
        values(x),
        values(weight),
        scatter_rows,
        op="sum" if averages else op,
        trans_weight=trans,
        residual=None if averages else _optional(residual),
        leaves=leaves,
        sum_columns=sum_columns,
        out=out,
    )
    if averages:
        total.div_(communicator.size)
        if residual is not None:
            total.add_(residual)
    return total


def _fake_matmul_reduce_scatter(
    x: _Tensor,
    weight: _Tensor,
    residual: Any,
    op: str,
    scatter_rows: Any,
    trans: bool,
    name: str,
    *options: Any,
) -> _Tensor:
    communicator, dim = communicator_of(name), _scattered_dim(x)
    rows = rows_of(x.shape[dim], communicator.size, scatter_rows)
    shape = with_rows(x.shape, dim, own_rows(rows, communicator.rank))
    return x.new_empty([*shape[:-1], _columns(weight, trans)])


def _save_matmul_reduce_scatter(ctx: Any, inputs: Any) -> None:
    x, weight, residual, ctx.op, scatter_rows, ctx.trans, ctx.name, *options = inputs
    _save(ctx, x, weight, residual, *options)
    ctx.ranks, dim = communicator_of(ctx.name).size, _scattered_dim(x)
    rows = rows_of(x.shape[dim], ctx.ranks, scatter_rows)
    ctx.rows = rows if dim == 1 else _in_rows(x, rows)


def _matmul_reduce_scatter_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul_reduce_scatter: of X, all_gather_matmul."""
    x, weight = _saved(ctx)
    own = _flat(gradient)
    g = own / ctx.ranks if ctx.op == "avg" else own
    for_x = for_weight = None
    if ctx.needs_input_grad[1] or (ctx.leaves and ctx.needs_input_grad[0]):
        # G is needed itself: it is gathered once. (n may have fewer columns than there are leaves.)
        whole = _ops.all_gatherv(g, ctx.rows, 0, ctx.name)
        for_weight = _weight_gradient(ctx, x, whole)
        for_x = _times_transposed(ctx, whole, weight)
    elif ctx.needs_input_grad[0]:
        for_x = _ops.all_gather_matmul(g, weight, None, ctx.rows, not ctx.trans, ctx.name)
    return *_shaped(ctx, for_x, for_weight, own), *[None] * 6


def _all_gather_matmul_reduce_scatter(
    x: Any,
    weight: Any,
    residual: Any,
    ag_dim: int,
    rs_dim: int,
    inner_dim_is_ag: bool,
    gather_rows: Any,
    scatter_rows: Any,
    trans: bool,
    name: str,
    leaves: int = 0,
    sum_columns: Any = None,
    out: Any = None,
) -> Any:
    return communicator_for_call(
        "all_gather_matmul_reduce_scatter", x, name
    ).all_gather_matmul_reduce_scatter(
        values(x),
        values(weight),
        ag_dim=ag_dim,
        rs_dim=rs_dim,
        inner_dim_is_ag=inner_dim_is_ag,
        gather_rows=gather_rows,
        scatter_rows=scatter_rows,
        trans_weight=trans,
        residual=_optional(residual),
        leaves=leaves,
        sum_columns=sum_columns,
        out=out,
    )


def _fake_all_gather_matmul_reduce_scatter(
    x: _Tensor,
    weight: _Tensor,
    residual: Any,
    ag_dim: int,
    rs_dim: int,
    inner_dim_is_ag: bool,
    gather_rows: Any,
    scatter_rows: Any,
    trans: bool,
    name: str,
    *options: Any,
) -> _Tensor:
    _, place = _places(communicator_of(name).rank, ag_dim, rs_dim, inner_dim_is_ag)
    own = own_rows(rows_of(sum(gather_rows), max(rs_dim, 1), scatter_rows), place)
    return x.new_empty([own, *x.shape[1:-1], _columns(weight, trans)])


def _save_all_gather_matmul_reduce_scatter(ctx: Any, inputs: Any) -> None:
    x, weight, residual, ag_dim, rs_dim, inner, gather_rows, scatter_rows, *rest = inputs
    ctx.trans, ctx.name, *options = rest
    _save(ctx, x, weight, residual, *options)
    ctx.grid = ag_dim, rs_dim, inner
    ctx.gather_rows = _in_rows(x, gather_rows)
    ctx.scatter_rows = _in_rows(x, rows_of(sum(gather_rows), rs_dim, scatter_rows))


def _check_same_columns(ctx: Any, g: _Tensor) -> None:
    # The k of a rank is the n of the gradient's call, which is one number on all ranks.
    columns = list(ctx.sum_columns or [])
    if all(count == columns[0] for count in columns):
        return
    name = "all_gather_matmul_reduce_scatter"
    refuse(
        communicator_of(ctx.name, g.device),
        name,
        ErrorCode.ERROR_UNSUPPORTED,
        f"{name}: x has a gradient where all ranks have as many columns, got sum_columns "
        f"{columns}: pass x.detach(), or call matmul_reduce_scatter",
    )


def _all_gather_matmul_reduce_scatter_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of all_gather_matmul_reduce_scatter: the same with the groups exchanged."""
    x, weight = _saved(ctx)
    g = _flat(gradient)
    ag_dim, rs_dim, inner = ctx.grid
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        _check_same_columns(ctx, g)
        lists = ctx.scatter_rows, ctx.gather_rows
        options = _options(ctx)
        for_x = _ops.all_gather_matmul_reduce_scatter(
            g, weight, None, rs_dim, ag_dim, not inner, *lists, not ctx.trans, ctx.name, *options
        )
    if ctx.needs_input_grad[1]:
        after = g if for_x is None else for_x
        whole_x = _gather_in_grid(ctx.name, ctx.grid, x, after, ctx.gather_rows)
        swapped = rs_dim, ag_dim, not inner
        whole_g = _gather_in_grid(ctx.name, swapped, g, whole_x, ctx.scatter_rows)
        for_weight = _weight_gradient(ctx, whole_x, whole_g)
    return *_shaped(ctx, for_x, for_weight, g), *[None] * 9


def _matmul_all_reduce(
    x: Any,
    weight: Any,
    residual: Any,
    trans: bool,
    name: str,
    leaves: int = 0,
    sum_columns: Any = None,
    out: Any = None,
) -> Any:
    return communicator_for_call("matmul_all_reduce", x, name).matmul_all_reduce(
        values(x),
        values(weight),
        trans_weight=trans,
        residual=_optional(residual),
        leaves=leaves,
        sum_columns=sum_columns,
        out=out,
    )


def _fake_product_of_rows(
    x: _Tensor, weight: _Tensor, residual: Any, trans: bool, name: str, *options: Any
) -> _Tensor:
    return x.new_empty([*x.shape[:-1], _columns(weight, trans)])


def _save_product_of_rows(ctx: Any, inputs: Any) -> None:
    x, weight, residual, ctx.trans, ctx.name, *options = inputs
    _save(ctx, x, weight, residual, *options)


def _matmul_all_reduce_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul_all_reduce: every rank's loss depends on the whole sum."""
    x, weight = _saved(ctx)
    own = _flat(gradient)
    for_x = for_weight = None
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
        g = _ops.all_reduce(own, "sum", ctx.name)
        for_x, for_weight = _times_transposed(ctx, g, weight), _weight_gradient(ctx, x, g)
    return *_shaped(ctx, for_x, for_weight, own), *[None] * 4


def _matmul(
    x: Any, weight: Any, residual: Any, trans: bool, name: str, leaves: int = 0, out: Any = None
) -> Any:
    # No call of the group, so that last_calls() does not list it.
    return communicator_of(name, x.device).matmul(
        values(x),
        values(weight),
        trans_weight=trans,
        residual=_optional(residual),
        leaves=leaves,
        out=out,
    )


def _matmul_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul, which are products of this rank, too."""
    x, weight = _saved(ctx)
    g = _flat(gradient)
    for_x, for_weight = _times_transposed(ctx, g, weight), _weight_gradient(ctx, x, g)
    return *_shaped(ctx, for_x, for_weight, g), *[None] * 3


def _matmul_in_leaves(x: Any, weight: Any, trans: bool, leaves: int, name: str) -> Any:
    """A product of a gradient: as many leaves, or one of each column if there are fewer."""
    k = x.shape[1]
    if k == 0:
        return x.new_zeros(x.shape[0], _columns(weight, trans))
    return _matmul(x, weight, None, trans, name, min(leaves, k))


def _fake_matmul_in_leaves(
    x: _Tensor, weight: _Tensor, trans: bool, leaves: int, name: str
) -> _Tensor:
    return x.new_empty([x.shape[0], _columns(weight, trans)])


def _save_matmul_in_leaves(ctx: Any, inputs: Any) -> None:
    x, weight, ctx.trans, leaves, ctx.name = inputs
    _save(ctx, x, weight, None, leaves)


def _matmul_in_leaves_gradient(ctx: Any, g: _Tensor) -> Any:
    x, weight = ctx.saved_tensors
    return _times_transposed(ctx, g, weight), _weight_gradient(ctx, x, g), *[None] * 3


def _blocks_exchanged(ctx: Any, x: _Tensor, after: _Tensor) -> _Tensor:
    """As all_to_all_matmul() exchanges x: the ranks' rows for this one, side by side."""
    ranks = communicator_of(ctx.name).size
    sizes = [x.shape[0] // ranks] * ranks
    whole = _ops._all_to_allv_after(x, after, sizes, sizes, ctx.name)
    return torch.cat(whole.split(sizes), 1)


def _all_to_all_matmul(
    x: Any, weight: Any, residual: Any, trans: bool, name: str, out: Any = None
) -> Any:
    communicator = communicator_for_call("all_to_all_matmul", x, name)
    words = {"trans_weight": trans, "residual": _optional(residual), "out": out}
    return communicator.all_to_all_matmul(values(x), values(weight), **words)


def _fake_all_to_all_matmul(
    x: _Tensor, weight: _Tensor, residual: Any, trans: bool, name: str
) -> _Tensor:
    return x.new_empty([x.shape[0] // communicator_of(name).size, _columns(weight, trans)])


def _save_exchanged(ctx: Any, inputs: Any) -> None:
    x, weight, residual, ctx.trans, ctx.name = inputs
    _save(ctx, x, weight, residual)


def _all_to_all_matmul_gradient(ctx: Any, g: _Tensor) -> Any:
    """The gradients of all_to_all_matmul: matmul_all_to_all, and x exchanged again."""
    x, weight = ctx.saved_tensors
    for_x = for_weight = None
    if ctx.needs_input_grad[0]:
        for_x = _ops.matmul_all_to_all(g, weight, None, not ctx.trans, ctx.name)
    if ctx.needs_input_grad[1]:
        whole = _blocks_exchanged(ctx, x, g if for_x is None else for_x)
        for_weight = _weight_gradient(ctx, whole, g)
    return *_shaped(ctx, for_x, for_weight, g), None, None


def _matmul_all_to_all(
    x: Any, weight: Any, residual: Any, trans: bool, name: str, out: Any = None
) -> Any:
    communicator = communicator_for_call("matmul_all_to_all", x, name)
    words = {"trans_weight": trans, "residual": _optional(residual), "out": out}
    return communicator.matmul_all_to_all(values(x), values(weight), **words)


def _fake_matmul_all_to_all(
    x: _Tensor, weight: _Tensor, residual: Any, trans: bool, name: str
) -> _Tensor:
    ranks = communicator_of(name).size
    return x.new_empty([x.shape[0] * ranks, _columns(weight, trans) // ranks])


def _matmul_all_to_all_gradient(ctx: Any, gradient: _Tensor) -> Any:
    """The gradients of matmul_all_to_all: of x alone, all_to_all_matmul."""
    x, weight = ctx.saved_tensors
    for_x = for_weight = None
    if ctx.needs_input_grad[1]:
        # That of the product is needed itself: it is exchanged once.
        g = _blocks_exchanged(ctx, gradient, gradient)
        for_weight = _weight_gradient(ctx, x, g)
        for_x = _times_transposed(ctx, g, weight)
    elif ctx.needs_input_grad[0]:
        for_x = _ops.all_to_all_matmul(gradient, weight, None, not ctx.trans, ctx.name)
    return *_shaped(ctx, for_x, for_weight, gradient), None, None


register(
    "all_gather_matmul",
    Operator(
        f"{_WEIGHT}, SymInt[] sizes, bool trans_weight",
        *(_all_gather_matmul, _fake_all_gather_matmul),
        *(_save_all_gather_matmul, _all_gather_matmul_gradient),
        _LEAVES,
    ),
)
register(
    "matmul_reduce_scatter",
    Operator(
        f"{_WEIGHT}, str op, SymInt[]? sizes, bool trans_weight",
        *(_matmul_reduce_scatter, _fake_matmul_reduce_scatter),
        *(_save_matmul_reduce_scatter, _matmul_reduce_scatter_gradient),
        f"{_LEAVES}, {_SUM_COLUMNS}",
    ),
)
register(
    "all_gather_matmul_reduce_scatter",
    Operator(
        f"{_WEIGHT}, {_GRID}, SymInt[] gather_rows, SymInt[]? scatter_rows, bool trans_weight",
        *(_all_gather_matmul_reduce_scatter, _fake_all_gather_matmul_reduce_scatter),
        *(_save_all_gather_matmul_reduce_scatter, _all_gather_matmul_reduce_scatter_gradient),
        f"{_LEAVES}, {_SUM_COLUMNS}",
    ),
)
register(
    "matmul_all_reduce",
    Operator(
        f"{_WEIGHT}, bool trans_weight",
        *(_matmul_all_reduce, _fake_product_of_rows),
        *(_save_product_of_rows, _matmul_all_reduce_gradient),
        f"{_LEAVES}, {_SUM_COLUMNS}",
    ),
)
register(
    "matmul",
    Operator(
        f"{_WEIGHT}, bool trans_weight",
        *(_matmul, _fake_product_of_rows),
        *(_save_product_of_rows, _matmul_gradient),
        _LEAVES,
    ),
)
register(
    "_matmul_in_leaves",
    Operator(
        "Tensor x, Tensor weight, bool trans_weight, int leaves",
        *(_matmul_in_leaves, _fake_matmul_in_leaves),
        *(_save_matmul_in_leaves, _matmul_in_leaves_gradient),
        has_out=False,
    ),
)
register(
    "all_to_all_matmul",
    Operator(
        f"{_WEIGHT}, bool trans_weight",
        *(_all_to_all_matmul, _fake_all_to_all_matmul),
        *(_save_exchanged, _all_to_all_matmul_gradient),
    ),
)
register(
    "matmul_all_to_all",
    Operator(
        f"{_WEIGHT}, bool trans_weight",
        *(_matmul_all_to_all, _fake_matmul_all_to_all),
        *(_save_exchanged, _matmul_all_to_all_gradient),
    ),
)
