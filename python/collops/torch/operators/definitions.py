"""The operators' schemas and what they run for CPU, GPU and NPU tensors: the communicator's call.

``torch.ops.collops.NAME`` has an overload ``out``, which writes the result into `out`. An input
that is not contiguous is copied, as torch.compile may choose other strides than the program.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import library as torch_library

from collops.torch.graph_breaks import break_graphs
from collops.torch.operators.names import communicator_for_call
from collops.torch.reductions import averages_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from collops.collectives.communicator import Communicator

# Library.define and impl: the decorator custom_op makes a call several times as long.
library = torch_library.Library("collops", "DEF")

_WEIGHT = "Tensor x, Tensor weight, Tensor? residual"
_GRID = "int ag_dim, int rs_dim, bool inner_dim_is_ag"
SCHEMAS = {
    "all_gatherv": "Tensor x, SymInt[]? sizes, int dim",
    "reduce_scatterv": "Tensor x, SymInt[]? sizes, int dim, str op",
    "all_to_allv": "Tensor x, SymInt[] send_sizes, SymInt[]? recv_sizes",
    "all_reduce": "Tensor x, str op",
    "all_gather_matmul": f"{_WEIGHT}, SymInt[]? gather_rows, bool trans_weight",
    "matmul_reduce_scatter": f"{_WEIGHT}, str op, SymInt[]? scatter_rows, bool trans_weight",
    "all_gather_matmul_reduce_scatter": (
        f"{_WEIGHT}, {_GRID}, SymInt[]? gather_rows, SymInt[]? scatter_rows, bool trans_weight"
    ),
    "matmul_all_reduce": f"{_WEIGHT}, bool trans_weight",
}
# Gradients of calls without sizes: the ranks tell each other the sizes again. And calls that come
# after another one's result, `after`: torch.compile moves operators that do not depend on each
# other, even into the forward graph, by the sizes of each rank; all ranks need one order.
BACKWARD_SCHEMAS = {
    "_all_gatherv_backward": "Tensor gradient, SymInt rows, int dim",
    "_all_to_allv_backward": "Tensor gradient, SymInt[] send_sizes",
    "_all_gatherv_after": "Tensor x, Tensor after, SymInt[] sizes",
    "_all_to_allv_after": "Tensor x, Tensor after, SymInt[] send_sizes, SymInt[] recv_sizes",
}


def _values(x: torch.Tensor) -> torch.Tensor:
    """Memory that holds the tensor's values in row-major order."""
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    return x.contiguous()


def _all_gatherv(x: Any, sizes: Any, dim: int, name: str, out: Any = None) -> Any:
    return communicator_for_call("all_gatherv", x, name).all_gatherv(_values(x), sizes, dim, out)


def _reduce_scatterv(x: Any, sizes: Any, dim: int, op: str, name: str, out: Any = None) -> Any:
    communicator, averages = (
        communicator_for_call("reduce_scatterv", x, name),
        averages_apart(x, op),
    )
    given = "sum" if averages else op
    total = communicator.reduce_scatterv(_values(x), sizes, dim, given, out)
    return total.div_(communicator.size) if averages else total


def _all_to_allv(x: Any, sends: Any, receives: Any, name: str, out: Any = None) -> Any:
    return communicator_for_call("all_to_allv", x, name).all_to_allv(
        _values(x), sends, receives, out
    )


def _all_reduce(x: Any, op: str, name: str, out: Any = None) -> Any:
    communicator, averages = communicator_for_call("all_reduce", x, name), averages_apart(x, op)
    total = communicator.all_reduce(_values(x), "sum" if averages else op, out)
    return total.div_(communicator.size) if averages else total


def _all_gather_matmul(
    x: Any, weight: Any, residual: Any, gather_rows: Any, trans: bool, name: str, out: Any = None
) -> Any:
    return communicator_for_call("all_gather_matmul", x, name).all_gather_matmul(
        _values(x),
        _values(weight),
        gather_rows=gather_rows,
        trans_weight=trans,
        residual=_optional(residual),
        out=out,
    )


def _matmul_reduce_scatter(
    x: Any,
    weight: Any,
    residual: Any,
    op: str,
    scatter_rows: Any,
    trans: bool,
    name: str,
    out: Any = None,
) -> Any:
    communicator, averages = (
        communicator_for_call("matmul_reduce_scatter", x, name),
        averages_apart(x, op, of_products=True),
    )
    total = communicator.matmul_reduce_scatter(
        _values(x),
        _values(weight),
        op="sum" if averages else op,
        scatter_rows=scatter_rows,
        trans_weight=trans,
        residual=None if averages else _optional(residual),
        out=out,
    )
    if averages:
        total.div_(communicator.size)
        if residual is not None:
            total.add_(residual)
    return total


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
    out: Any = None,
) -> Any:
    return communicator_for_call(
        "all_gather_matmul_reduce_scatter", x, name
    ).all_gather_matmul_reduce_scatter(
        _values(x),
        _values(weight),
        ag_dim=ag_dim,
        rs_dim=rs_dim,
        inner_dim_is_ag=inner_dim_is_ag,
        gather_rows=gather_rows,
        scatter_rows=scatter_rows,
        trans_weight=trans,
        residual=_optional(residual),
        out=out,
    )


def _matmul_all_reduce(
    x: Any, weight: Any, residual: Any, trans: bool, name: str, out: Any = None
) -> Any:
    return communicator_for_call("matmul_all_reduce", x, name).matmul_all_reduce(
        _values(x), _values(weight), trans_weight=trans, residual=_optional(residual), out=out
    )


def _optional(residual: Any) -> Any:
    return None if residual is None else _values(residual)


def _all_gatherv_backward(gradient: Any, rows: int, dim: int, name: str) -> Any:
    communicator = communicator_for_call("_all_gatherv_backward", gradient, name)
    own = torch.tensor([rows], device=gradient.device)
    sizes = communicator.all_gatherv(own, _ones(communicator)).tolist()
    return communicator.reduce_scatterv(_values(gradient), sizes, dim)


def _all_to_allv_backward(gradient: Any, send_sizes: Sequence[int], name: str) -> Any:
    communicator = communicator_for_call("_all_to_allv_backward", gradient, name)
    ones, own = _ones(communicator), torch.tensor(send_sizes, device=gradient.device)
    receives = communicator.all_to_allv(own, ones, ones).tolist()
    return communicator.all_to_allv(_values(gradient), receives, send_sizes)


def _all_gatherv_after(x: Any, after: Any, sizes: Any, name: str) -> Any:
    return _all_gatherv(x, sizes, 0, name)


def _all_to_allv_after(x: Any, after: Any, sends: Any, receives: Any, name: str) -> Any:
    return _all_to_allv(x, sends, receives, name)


def _ones(communicator: Communicator) -> list[int]:
    return [1] * communicator.size


@break_graphs
def _into(call: Callable[..., Any], *args: Any, out: torch.Tensor) -> None:
    call(*args, out)


CALLS: dict[str, Callable[..., Any]] = {
    "all_gatherv": _all_gatherv,
    "reduce_scatterv": _reduce_scatterv,
    "all_to_allv": _all_to_allv,
    "all_reduce": _all_reduce,
    "all_gather_matmul": _all_gather_matmul,
    "matmul_reduce_scatter": _matmul_reduce_scatter,
    "all_gather_matmul_reduce_scatter": _all_gather_matmul_reduce_scatter,
    "matmul_all_reduce": _matmul_all_reduce,
}
BACKWARD_CALLS: dict[str, Callable[..., Any]] = {
    "_all_gatherv_backward": _all_gatherv_backward,
    "_all_to_allv_backward": _all_to_allv_backward,
    "_all_gatherv_after": _all_gatherv_after,
    "_all_to_allv_after": _all_to_allv_after,
}

for _call in (*CALLS.values(), *BACKWARD_CALLS.values()):
    break_graphs(_call)  # where torch.compile has broken its graph before an operator

# The last is that of torch_npu's tensors.
_KEYS = ("CPU", "CUDA", "PrivateUse1")

for _name, _schema in SCHEMAS.items():
    library.define(f"{_name}({_schema}, str group_name) -> Tensor")
    for _key in _KEYS:
        library.impl(_name, CALLS[_name], _key)
    # It returns nothing: torch.compile takes no operator that returns an argument.
    library.define(f"{_name}.out({_schema}, str group_name, *, Tensor(a!) out) -> ()")
    for _key in _KEYS:
        library.impl(f"{_name}.out", partial(_into, CALLS[_name]), _key)
for _name, _schema in BACKWARD_SCHEMAS.items():
    library.define(f"{_name}({_schema}, str group_name) -> Tensor")
    for _key in _KEYS:
        library.impl(_name, BACKWARD_CALLS[_name], _key)
