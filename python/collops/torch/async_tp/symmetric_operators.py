"""torch's symm_mem operators for CPU and CUDA tensors of a collops group.

torch 2.13 defines them with kernels for CUDA alone, which groups of other backends keep. A result
has the strides that torch's own fake kernel promises, as inductor relies on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import library as torch_library

from collops.errors import ErrorCode
from collops.torch.async_tp.enable import group_of
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.group import Group
from collops.torch.private import resolve_process_group, symmetric_memory
from collops.torch.reductions import averages_apart

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

# Types that the core multiplies; others are gathered or scattered, and multiplied by torch.
PRODUCT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_REDUCTIONS = ("sum", "avg")


def _fused_all_gather_matmul(
    shard: torch.Tensor,
    weights: Sequence[torch.Tensor],
    gather_dim: int,
    group_name: str,
    *,
    return_A: bool = True,  # noqa: N803 (torch's name)
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    call = "fused_all_gather_matmul"
    comm = group_of(call, group_name).communicator_for(shard.device)
    _check_matrices(comm, call, shard, weights)
    dim = _whole_dim(comm, call, "gather_dim", shard, gather_dim)
    last = dim == shard.dim() - 1
    x = _rows_first(shard, 0 if last else dim)
    rows = (x.shape[0] * comm.size, *x.shape[1:-1])
    if not (return_A or last) and len(weights) == 1 and _core_multiplies(x, weights[0]):
        matrix = x.flatten(0, -2)
        weight, transposed = _stored(weights[0])
        equal = [len(matrix)] * comm.size
        product = comm.all_gather_matmul(matrix, weight, equal, trans_weight=transposed)
        return None, [product.view(*rows, product.shape[-1]).movedim(0, dim)]
    whole = x.new_empty(*rows, x.shape[-1])
    comm.all_gather(x, whole)
    if last:
        whole = torch.cat(whole.chunk(comm.size), dim=-1)
        return whole if return_A else None, [torch.matmul(whole, weight) for weight in weights]
    products = [torch.matmul(whole, weight).movedim(0, dim) for weight in weights]
    return whole.movedim(0, dim) if return_A else None, products


def _fused_matmul_reduce_scatter(
    x: torch.Tensor, weight: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    call = "fused_matmul_reduce_scatter"
    comm = group_of(call, group_name).communicator_for(x.device)
    _check_matrices(comm, call, x, [weight])
    _check_reduction(comm, call, reduce_op)
    dim = _whole_dim(comm, call, "scatter_dim", x, scatter_dim)
    last = dim == x.dim() - 1
    shared = weight.shape[1] if last else x.shape[dim]
    _check_shares(comm, call, shared, comm.size)
    lead = list(x.shape[:-1])
    if not _core_multiplies(x, weight):
        product = _rows_first(torch.matmul(x.detach(), weight.detach()), dim)
        own = comm.reduce_scatter(product, reduce_op)
        return own.movedim(0, dim).contiguous()
    if last:
        # The transposed product: its rows are the columns that are shared out.
        turned = weight.detach().t().contiguous()
        own = _scattered_product(comm, turned, x.detach().flatten(0, -2).contiguous(), reduce_op)
        return own.t().contiguous().view(*lead, own.shape[0])
    rows_first = _rows_first(x, dim)
    stored, transposed = _stored(weight)
    matrix = rows_first.flatten(0, -2)
    own = _scattered_product(comm, matrix, stored, reduce_op, transposed)
    shape = (shared // comm.size, *rows_first.shape[1:-1], weight.shape[1])
    return own.view(shape).movedim(0, dim).contiguous()


def _scattered_product(
    comm: Communicator, x: torch.Tensor, weight: torch.Tensor, op: str, transposed: bool = True
) -> torch.Tensor:
    """This rank's rows of the reduced products."""
    if not averages_apart(x, op, of_products=True):
        return comm.matmul_reduce_scatter(x, weight, op=op, trans_weight=transposed)
    return comm.matmul_reduce_scatter(x, weight, trans_weight=transposed).div_(comm.size)


def _low_contention_all_gather(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    comm = group_of("_low_contention_all_gather", group_name).communicator_for(tensor.device)
    out = tensor.new_empty(tensor.shape[0] * comm.size, *tensor.shape[1:])
    comm.all_gather(tensor.detach().contiguous(), out)
    return out


def _low_contention_reduce_scatter(
    tensor: torch.Tensor, reduce_op: str, group_name: str
) -> torch.Tensor:
    call = "_low_contention_reduce_scatter"
    comm = group_of(call, group_name).communicator_for(tensor.device)
    _check_reduction(comm, call, reduce_op)
    _check_shares(comm, call, tensor.shape[0], comm.size)
    return comm.reduce_scatter(tensor.detach().contiguous(), reduce_op)


def _rows_first(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The tensor with a dim moved to the front, in order."""
    return x.detach().movedim(dim, 0).contiguous()


def _stored(weight: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The weight as it lies in memory, and whether that is [n, k]."""
    weight = weight.detach()
    if not weight.is_contiguous() and weight.t().is_contiguous():
        return weight.t(), True
    return weight.contiguous(), False


def _core_multiplies(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return x.dtype in PRODUCT_TYPES and weight.dtype == x.dtype and 0 not in weight.shape


def _check_matrices(
    comm: Communicator, call: str, x: torch.Tensor, weights: Sequence[torch.Tensor]
) -> None:
    if x.dim() < 2:
        refuse(
            comm,
            call,
            ErrorCode.ERROR_INVALID_TENSOR_DIM,
            f"{call}: A must have at least 2 dims, got {x.dim()}",
        )
    for number, weight in enumerate(weights):
        if weight.dim() != 2:
            refuse(
                comm,
                call,
                ErrorCode.ERROR_INVALID_TENSOR_DIM,
                f"{call}: B {number} must be a matrix, got {weight.dim()} dims",
            )


def _whole_dim(comm: Communicator, call: str, label: str, x: torch.Tensor, dim: int) -> int:
    dims: int = x.dim()
    if not -dims <= dim < dims:
        refuse(
            comm,
            call,
            ErrorCode.ERROR_INVALID_PARAM,
            f"{call}: {label} must be from {-dims} to {dims - 1}, got {dim}",
        )
    return dim % dims


def _check_reduction(comm: Communicator, call: str, reduce_op: str) -> None:
    if reduce_op not in _REDUCTIONS:
        refuse(
            comm,
            call,
            ErrorCode.ERROR_INVALID_PARAM,
            f'{call}: reduce_op must be "sum" or "avg", got {reduce_op!r}',
        )


def _check_shares(comm: Communicator, call: str, shared: int, ranks: int) -> None:
    if shared % ranks:
        refuse(
            comm,
            call,
            ErrorCode.ERROR_INVALID_TENSOR_DIM,
            f"{call}: {shared} rows do not divide evenly among {ranks} ranks; "
            "torch.ops.collops.matmul_reduce_scatter takes the rows of each rank",
        )


_KERNELS: dict[str, Any] = {
    "fused_all_gather_matmul": _fused_all_gather_matmul,
    "fused_matmul_reduce_scatter": _fused_matmul_reduce_scatter,
    "_low_contention_all_gather": _low_contention_all_gather,
    "_low_contention_reduce_scatter": _low_contention_reduce_scatter,
}
for _kernel in _KERNELS.values():
    break_graphs(_kernel)
_LIBRARIES: dict[str, torch_library.Library] = {}  # by the key; kernels live as long as theirs


def register() -> None:
    """Gives torch's symm_mem operators kernels for CPU tensors, and for CUDA tensors if torch has
    these; once for the process.

    ``torch.distributed._symmetric_memory`` defines the operators, before or after this.
    """
    _register("CPU", _KERNELS)
    if torch.backends.cuda.is_built():
        register_cuda()


def register_cuda() -> None:
    """Puts kernels for CUDA tensors of collops groups in front of torch's own."""
    # The kernel that is registered last runs.
    torchs = symmetric_memory()
    kernels = {
        name: _in_front(kernel, getattr(torchs, f"_{name.removeprefix('_')}"))
        for name, kernel in _KERNELS.items()
    }
    with warnings.catch_warnings():  # torch's, that a kernel has another before it
        warnings.simplefilter("ignore")
        _register("CUDA", kernels)


def _in_front(own: Callable[..., Any], torchs: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of ours for collops groups, and of torch's for others."""

    @break_graphs
    def choose(*args: Any, **kwargs: Any) -> Any:
        name = next(arg for arg in reversed((*args, *kwargs.values())) if isinstance(arg, str))
        is_own = isinstance(resolve_process_group(name), Group)
        return (own if is_own else torchs)(*args, **kwargs)

    return choose


def _register(key: str, kernels: dict[str, Any]) -> None:
    if key not in _LIBRARIES:
        _LIBRARIES[key] = torch_library.Library("symm_mem", "IMPL")
        for name, kernel in kernels.items():
            _LIBRARIES[key].impl(name, kernel, key, allow_override=True)  # the default from 2.13 on
