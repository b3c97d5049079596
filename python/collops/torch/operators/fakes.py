"""The operators' results without data: what torch.compile and torch.export trace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import library as torch_library

from collops.torch.operators.definitions import SCHEMAS, library
from collops.torch.operators.names import communicator_of
from collops.torch.operators.order import keep_order_in_inductor
from collops.torch.operators.shapes import (
    columns,
    own_rows,
    places,
    rows_of,
    scattered_dim,
    with_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_Tensor: TypeAlias = torch.Tensor


def _all_gatherv(x: _Tensor, sizes: Any, dim: int, name: str) -> _Tensor:
    return x.new_empty(with_rows(x.shape, dim, _received(sizes)))


def _reduce_scatterv(x: _Tensor, sizes: Any, dim: int, op: str, name: str) -> _Tensor:
    communicator = communicator_of(name)
    total = x.shape[dim] if -x.ndim <= dim < x.ndim else 0
    rows = rows_of(total, communicator.size, sizes)
    return x.new_empty(with_rows(x.shape, dim, own_rows(rows, communicator.rank)))


def _all_to_allv(x: _Tensor, sends: Any, receives: Any, name: str) -> _Tensor:
    return x.new_empty(with_rows(x.shape, 0, _received(receives)))


def _received(sizes: Any) -> Any:
    # What the ranks will tell each other is a symbol of its own.
    return torch_library.get_ctx().new_dynamic_size() if sizes is None else sum(sizes)


def _all_reduce(x: _Tensor, op: str, name: str) -> _Tensor:
    return x.new_empty(x.shape)


def _all_gather_matmul(
    x: _Tensor, weight: _Tensor, residual: Any, gather_rows: Any, trans: bool, name: str
) -> _Tensor:
    total = x.shape[0] * communicator_of(name).size if gather_rows is None else sum(gather_rows)
    return x.new_empty([total, *x.shape[1:-1], columns(weight, trans)])


def _matmul_reduce_scatter(
    x: _Tensor,
    weight: _Tensor,
    residual: Any,
    op: str,
    scatter_rows: Any,
    trans: bool,
    name: str,
) -> _Tensor:
    communicator, dim = communicator_of(name), scattered_dim(x)
    rows = rows_of(x.shape[dim], communicator.size, scatter_rows)
    shape = with_rows(x.shape, dim, own_rows(rows, communicator.rank))
    return x.new_empty([*shape[:-1], columns(weight, trans)])


def _all_gather_matmul_reduce_scatter(
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
) -> _Tensor:
    _, place = places(communicator_of(name).rank, ag_dim, rs_dim, inner_dim_is_ag)
    total = x.shape[0] * ag_dim if gather_rows is None else sum(gather_rows)
    own = own_rows(rows_of(total, max(rs_dim, 1), scatter_rows), place)
    return x.new_empty([own, *x.shape[1:-1], columns(weight, trans)])


def _matmul_all_reduce(
    x: _Tensor, weight: _Tensor, residual: Any, trans: bool, name: str
) -> _Tensor:
    return x.new_empty([*x.shape[:-1], columns(weight, trans)])


def _all_gatherv_backward(gradient: _Tensor, rows: Any, dim: int, name: str) -> _Tensor:
    return gradient.new_empty(with_rows(gradient.shape, dim, rows))


def _all_to_allv_backward(gradient: _Tensor, send_sizes: Any, name: str) -> _Tensor:
    return gradient.new_empty(with_rows(gradient.shape, 0, sum(send_sizes)))


def _all_gatherv_after(x: _Tensor, after: _Tensor, sizes: Any, name: str) -> _Tensor:
    return _all_gatherv(x, sizes, 0, name)


def _all_to_allv_after(x: _Tensor, after: _Tensor, sends: Any, receives: Any, name: str) -> _Tensor:
    return _all_to_allv(x, sends, receives, name)


def _nothing(*args: Any, out: _Tensor) -> None:
    """The overloads with `out` return nothing."""


_FAKES: dict[str, Callable[..., Any]] = {
    "all_gatherv": _all_gatherv,
    "reduce_scatterv": _reduce_scatterv,
    "all_to_allv": _all_to_allv,
    "all_reduce": _all_reduce,
    "all_gather_matmul": _all_gather_matmul,
    "matmul_reduce_scatter": _matmul_reduce_scatter,
    "all_gather_matmul_reduce_scatter": _all_gather_matmul_reduce_scatter,
    "matmul_all_reduce": _matmul_all_reduce,
    "_all_gatherv_backward": _all_gatherv_backward,
    "_all_to_allv_backward": _all_to_allv_backward,
    "_all_gatherv_after": _all_gatherv_after,
    "_all_to_allv_after": _all_to_allv_after,
}


def _run(fake: Callable[..., Any], *args: Any, **words: Any) -> Any:
    keep_order_in_inductor()
    return fake(*args, **words)


for _name, _fake in _FAKES.items():
    torch_library.register_fake(f"collops::{_name}", partial(_run, _fake), lib=library)
for _name in SCHEMAS:
    torch_library.register_fake(f"collops::{_name}.out", partial(_run, _nothing), lib=library)
