"""The operators that move and reduce rows: their calls, shapes and gradients.

A gradient is that of the sum of all ranks' losses, as with torch's functional collectives: the call
that goes the other way. Inputs require gradients on all ranks or on none, as the gradients are
calls of all ranks, too. An input that is not contiguous is copied, as torch.compile may choose
other strides than the program.

Sizes may be symbols of torch.compile, so that shapes are plain arithmetic. Wrong sizes give some
shape here: the call itself refuses them, with a message for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import library as torch_library

from collops.errors import ErrorCode, raise_status
from collops.torch.graph_breaks import break_graphs
from collops.torch.operators.names import communicator_for_call, communicator_of
from collops.torch.operators.record import Operator, register
from collops.torch.reductions import averages_apart

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_ops = torch.ops.collops
_Tensor: TypeAlias = torch.Tensor
# Numbers of rows, or symbols of them.
Rows: TypeAlias = "Sequence[Any]"


def values(x: _Tensor) -> _Tensor:
    """Memory that holds the tensor's values in row-major order."""
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    return x.contiguous()


def split_rows(total: Any, parts: int) -> list[Any]:
    """The rows of each part, as numpy.array_split shares them out."""
    # The first `total % parts` have one more; no comparison that would fix a symbol.
    return [(total + parts - 1 - part) // parts for part in range(parts)]


def rows_of(total: Any, parts: int, sizes: Rows | None) -> list[Any]:
    """The rows of each part: `sizes`, or an even share."""
    return split_rows(total, parts) if sizes is None else list(sizes)


@break_graphs
def told_rows(x: _Tensor, name: str) -> list[int]:
    """The rows of x on every rank, which the ranks tell each other."""
    communicator = communicator_of(name, x.device)
    own = torch.tensor([len(x)], device=x.device)
    rows: list[int] = communicator.all_gatherv(own, _ones(communicator)).tolist()
    return rows


def own_rows(rows: Rows, place: int) -> Any:
    """The rows of one part."""
    return rows[place] if place < len(rows) else 0


def with_rows(shape: Sequence[Any], dim: int, rows: Any) -> list[Any]:
    """A shape with another number of rows along `dim`."""
    changed = list(shape)
    if -len(changed) <= dim < len(changed):
        changed[dim] = rows
    return changed


def refuse_unless_linear(name: str, op: str) -> None:
    """Refuses the gradient of a reduction that has none."""
    if op not in ("sum", "avg"):
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f'{name}: op "{op}" has no gradient, "sum" and "avg" have: pass x.detach()',
        )


def _received(sizes: Any) -> Any:
    # What the ranks will tell each other is a symbol of its own.
    return torch_library.get_ctx().new_dynamic_size() if sizes is None else sum(sizes)


def _ones(communicator: Communicator) -> list[int]:
    return [1] * communicator.size


def _all_gatherv(x: Any, sizes: Any, dim: int, name: str, out: Any = None) -> Any:
    return communicator_for_call("all_gatherv", x, name).all_gatherv(values(x), sizes, dim, out)


def _fake_all_gatherv(x: _Tensor, sizes: Any, dim: int, name: str) -> _Tensor:
    return x.new_empty(with_rows(x.shape, dim, _received(sizes)))


def _save_all_gatherv(ctx: Any, inputs: Any) -> None:
    x, ctx.sizes, ctx.dim, ctx.name = inputs
    ctx.rows = x.shape[ctx.dim]


def _all_gatherv_gradient(ctx: Any, gradient: _Tensor) -> Any:
    if ctx.sizes is None:
        own = _ops._all_gatherv_backward(gradient, ctx.rows, ctx.dim, ctx.name)
    else:
        own = _ops.reduce_scatterv(gradient, ctx.sizes, ctx.dim, "sum", ctx.name)
    return own, None, None, None


def _reduce_scatterv(x: Any, sizes: Any, dim: int, op: str, name: str, out: Any = None) -> Any:
    communicator = communicator_for_call("reduce_scatterv", x, name)
    averages = averages_apart(x, op)
    given = "sum" if averages else op
    total = communicator.reduce_scatterv(values(x), sizes, dim, given, out)
    return total.div_(communicator.size) if averages else total


def _fake_reduce_scatterv(x: _Tensor, sizes: Any, dim: int, op: str, name: str) -> _Tensor:
    communicator = communicator_of(name)
    total = x.shape[dim] if -x.ndim <= dim < x.ndim else 0
    rows = rows_of(total, communicator.size, sizes)
    return x.new_empty(with_rows(x.shape, dim, own_rows(rows, communicator.rank)))


def _save_reduce_scatterv(ctx: Any, inputs: Any) -> None:
    x, sizes, ctx.dim, ctx.op, ctx.name = inputs
    ctx.ranks = communicator_of(ctx.name).size
    ctx.sizes = rows_of(x.shape[ctx.dim], ctx.ranks, sizes)


def _reduce_scatterv_gradient(ctx: Any, gradient: _Tensor) -> Any:
    refuse_unless_linear("reduce_scatterv", ctx.op)
    whole = _ops.all_gatherv(gradient, ctx.sizes, ctx.dim, ctx.name)
    return (whole / ctx.ranks if ctx.op == "avg" else whole), None, None, None, None


def _all_to_allv(x: Any, sends: Any, receives: Any, name: str, out: Any = None) -> Any:
    communicator = communicator_for_call("all_to_allv", x, name)
    return communicator.all_to_allv(values(x), sends, receives, out)


def _fake_all_to_allv(x: _Tensor, sends: Any, receives: Any, name: str) -> _Tensor:
    return x.new_empty(with_rows(x.shape, 0, _received(receives)))


def _save_all_to_allv(ctx: Any, inputs: Any) -> None:
    _, ctx.sends, ctx.receives, ctx.name = inputs


def _all_to_allv_gradient(ctx: Any, gradient: _Tensor) -> Any:
    if ctx.receives is None:
        own = _ops._all_to_allv_backward(gradient, ctx.sends, ctx.name)
    else:
        own = _ops.all_to_allv(gradient, ctx.receives, ctx.sends, ctx.name)
    return own, None, None, None


def _all_reduce(x: Any, op: str, name: str, out: Any = None) -> Any:
    communicator, averages = communicator_for_call("all_reduce", x, name), averages_apart(x, op)
    total = communicator.all_reduce(values(x), "sum" if averages else op, out)
    return total.div_(communicator.size) if averages else total


def _fake_all_reduce(x: _Tensor, op: str, name: str) -> _Tensor:
    return x.new_empty(x.shape)


def _save_all_reduce(ctx: Any, inputs: Any) -> None:
    _, ctx.op, ctx.name = inputs


def _all_reduce_gradient(ctx: Any, gradient: _Tensor) -> Any:
    refuse_unless_linear("all_reduce", ctx.op)
    return _ops.all_reduce(gradient, ctx.op, ctx.name), None, None


def _all_gatherv_backward(gradient: Any, rows: int, dim: int, name: str) -> Any:
    communicator = communicator_for_call("_all_gatherv_backward", gradient, name)
    own = torch.tensor([rows], device=gradient.device)
    sizes = communicator.all_gatherv(own, _ones(communicator)).tolist()
    return communicator.reduce_scatterv(values(gradient), sizes, dim)


def _fake_all_gatherv_backward(gradient: _Tensor, rows: Any, dim: int, name: str) -> _Tensor:
    return gradient.new_empty(with_rows(gradient.shape, dim, rows))


def _all_to_allv_backward(gradient: Any, send_sizes: Sequence[int], name: str) -> Any:
    communicator = communicator_for_call("_all_to_allv_backward", gradient, name)
    ones, own = _ones(communicator), torch.tensor(send_sizes, device=gradient.device)
    receives = communicator.all_to_allv(own, ones, ones).tolist()
    return communicator.all_to_allv(values(gradient), receives, send_sizes)


def _fake_all_to_allv_backward(gradient: _Tensor, send_sizes: Any, name: str) -> _Tensor:
    return gradient.new_empty(with_rows(gradient.shape, 0, sum(send_sizes)))


def _save_nothing(ctx: Any, inputs: Any) -> None:
    """The gradient is refused."""


def _refuse_second(ctx: Any, gradient: _Tensor) -> Any:
    raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        "all_gatherv and all_to_allv without sizes have no second gradient: pass the sizes",
    )


def _all_gatherv_after(x: Any, after: Any, sizes: Any, name: str) -> Any:
    return _all_gatherv(x, sizes, 0, name)


def _fake_all_gatherv_after(x: _Tensor, after: _Tensor, sizes: Any, name: str) -> _Tensor:
    return _fake_all_gatherv(x, sizes, 0, name)


def _save_all_gatherv_after(ctx: Any, inputs: Any) -> None:
    _, _, ctx.sizes, ctx.name = inputs


def _all_gatherv_after_gradient(ctx: Any, gradient: _Tensor) -> Any:
    return _ops.reduce_scatterv(gradient, ctx.sizes, 0, "sum", ctx.name), None, None, None


def _all_to_allv_after(x: Any, after: Any, sends: Any, receives: Any, name: str) -> Any:
    return _all_to_allv(x, sends, receives, name)


def _fake_all_to_allv_after(
    x: _Tensor, after: _Tensor, sends: Any, receives: Any, name: str
) -> _Tensor:
    return _fake_all_to_allv(x, sends, receives, name)


def _save_all_to_allv_after(ctx: Any, inputs: Any) -> None:
    _, _, ctx.sends, ctx.receives, ctx.name = inputs


def _all_to_allv_after_gradient(ctx: Any, gradient: _Tensor) -> Any:
    return _ops.all_to_allv(gradient, ctx.receives, ctx.sends, ctx.name), *[None] * 4


register(
    "all_gatherv",
    Operator(
        "Tensor x, SymInt[]? sizes, int dim",
        *(_all_gatherv, _fake_all_gatherv, _save_all_gatherv, _all_gatherv_gradient),
    ),
)
register(
    "reduce_scatterv",
    Operator(
        "Tensor x, SymInt[]? sizes, int dim, str op",
        *(_reduce_scatterv, _fake_reduce_scatterv),
        *(_save_reduce_scatterv, _reduce_scatterv_gradient),
    ),
)
register(
    "all_to_allv",
    Operator(
        "Tensor x, SymInt[] send_sizes, SymInt[]? recv_sizes",
        *(_all_to_allv, _fake_all_to_allv, _save_all_to_allv, _all_to_allv_gradient),
    ),
)
register(
    "all_reduce",
    Operator(
        "Tensor x, str op",
        *(_all_reduce, _fake_all_reduce, _save_all_reduce, _all_reduce_gradient),
    ),
)
# Gradients of calls without sizes: the ranks tell each other the sizes again.
register(
    "_all_gatherv_backward",
    Operator(
        "Tensor gradient, SymInt rows, int dim",
        *(_all_gatherv_backward, _fake_all_gatherv_backward, _save_nothing, _refuse_second),
        has_out=False,
    ),
)
register(
    "_all_to_allv_backward",
    Operator(
        "Tensor gradient, SymInt[] send_sizes",
        *(_all_to_allv_backward, _fake_all_to_allv_backward, _save_nothing, _refuse_second),
        has_out=False,
    ),
)
# Calls that come after another one's result, `after`: torch.compile moves operators that do not
# depend on each other, even into the forward graph, by the sizes of each rank; all ranks need one
# order.
register(
    "_all_gatherv_after",
    Operator(
        "Tensor x, Tensor after, SymInt[] sizes",
        *(_all_gatherv_after, _fake_all_gatherv_after),
        *(_save_all_gatherv_after, _all_gatherv_after_gradient),
        has_out=False,
    ),
)
register(
    "_all_to_allv_after",
    Operator(
        "Tensor x, Tensor after, SymInt[] send_sizes, SymInt[] recv_sizes",
        *(_all_to_allv_after, _fake_all_to_allv_after),
        *(_save_all_to_allv_after, _all_to_allv_after_gradient),
        has_out=False,
    ),
)
