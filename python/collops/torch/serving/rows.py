"""The collops group of an engine's ranks, and the rows that its ranks gather and scatter."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import collops.torch
from collops.errors import ErrorCode, raise_status
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.reductions import averages_apart
from collops.torch.serving.calls import read_of, write_of

if TYPE_CHECKING:
    from collops.torch.group import Group


# By the group whose ranks they have. A group of another backend keeps one for as long as it lives.
_SIBLINGS: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()


@break_graphs
def collops_group(*groups: Any) -> Group:
    """The first of the groups that is collops's own, or a sibling of the first with its ranks.

    A sibling is made once, by the ranks of that group alone: all of them call this, and ranks
    outside the group need not. It is destroyed with all groups, by ``destroy_process_group()``.

    Args:
        groups: groups of torch.distributed that have the same ranks, or None for those that do not
            exist.

    Returns:
        A group of collops with these ranks, in their order.

    Raises:
        collops.Error: there is no group, or torch.distributed does not know the first one.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> from collops.testing import run_ranks
        >>> from collops.torch.serving import collops_group
        >>> def rows(rank, path):
        ...     where = f"file://{path}"
        ...     dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
        ...     group = collops_group(dist.group.WORLD)
        ...     every = group.communicator.all_gatherv(torch.full((rank, 1), 7), sizes=[0, 1])
        ...     dist.destroy_process_group()
        ...     return every.tolist()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(rows, 2, f"{folder}/store")
        [[[7]], [[7]]]
    """
    known = [group for group in groups if group is not None]
    for group in known:
        if isinstance(group, collops.torch.Group):
            return group
    if not known:
        raise_status(ErrorCode.ERROR_INVALID_PARAM, "collops_group: no group was given")
    if (sibling := _SIBLINGS.get(known[0])) is None:
        sibling = _SIBLINGS[known[0]] = _new_sibling(known[0])
    return sibling


def _new_sibling(group: Any) -> Group:
    try:
        ranks = dist.get_process_group_ranks(group)
    except (KeyError, RuntimeError, ValueError):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            "collops_group: torch.distributed does not know the group: make it by new_group(), or "
            'pass one that new_group(ranks, backend="collops") made',
        )
    group = dist.new_group(ranks, backend="collops", use_local_synchronization=True)
    assert isinstance(group, collops.torch.Group)
    return group


def gather_rows(
    group: Group,
    x: torch.Tensor,
    sizes: Sequence[int] | None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The rows of all ranks, in rank order; None: as many on each rank as here."""
    comm = group.communicator_for(x.device)
    if out is None:
        rows = x.shape[0] * comm.size if sizes is None else sum(sizes)
        out = x.new_empty((rows, *x.shape[1:]), requires_grad=False)
    given, whole = read_of(group, "AllGatherV", x), write_of(group, "AllGatherV", out)
    if _even(sizes, x.shape[0], comm.size):
        comm.all_gather(given, whole.memory)
    else:
        comm.all_gatherv(given, sizes, 0, whole.memory)
    if whole.finish is not None:
        whole.finish()
    return out


def gather_list(
    group: Group, xs: Sequence[torch.Tensor], sizes: Sequence[int] | None
) -> list[torch.Tensor]:
    """As gather_rows() for each tensor, but in one call: a row has the bytes of all of them."""
    rows = _rows_of(group, xs, sizes)
    if len(xs) < 2:
        return [gather_rows(group, x, sizes) for x in xs]
    return unpack(gather_rows(group, pack(xs, rows), sizes), xs)


def pack(xs: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    """The bytes of tensors with so many rows, those of a row beside each other."""
    return torch.cat([_bytes_of(x, rows) for x in xs], dim=1)


def unpack(packed: torch.Tensor, xs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of rows that were packed from tensors like xs."""
    columns = packed.split([x.shape[1:].numel() * x.element_size() for x in xs], dim=1)
    return [_from_bytes(column, x) for column, x in zip(columns, xs, strict=True)]


def scatter_rows(
    group: Group,
    x: torch.Tensor,
    sizes: Sequence[int] | None,
    out: torch.Tensor | None = None,
    op: str = "sum",
) -> torch.Tensor:
    """This rank's rows of the reduction over all ranks; None: as many for each rank."""
    comm = group.communicator_for(x.device)
    if out is None:
        rows = x.shape[0] // comm.size if sizes is None else _own(group, sizes)
        out = x.new_empty((rows, *x.shape[1:]), requires_grad=False)
    given, own = read_of(group, "ReduceScatterV", x), write_of(group, "ReduceScatterV", out)
    averages = averages_apart(x, op)
    op = "sum" if averages else op
    if _even(sizes, x.shape[0] // comm.size, comm.size):
        comm.reduce_scatter(given, op, own.memory)
    else:
        comm.reduce_scatterv(given, sizes, 0, op, own.memory)
    if averages:
        own.memory.div_(comm.size)
    if own.finish is not None:
        own.finish()
    return out


def _even(sizes: Sequence[int] | None, rows: int, ranks: int) -> bool:
    # Wrong sizes go to the uneven call, which refuses them and tells the other ranks.
    return sizes is None or list(sizes) == [rows] * ranks


def _own(group: Group, sizes: Sequence[int]) -> int:
    rank = group.rank()
    return sizes[rank] if rank < len(sizes) else 0


def _rows_of(group: Group, xs: Sequence[torch.Tensor], sizes: Sequence[int] | None) -> int:
    rows = xs[0].shape[0] if xs else 0
    for i, x in enumerate(xs):
        if sizes is not None and x.shape[0] != _own(group, sizes):
            # The communicator refuses it, and tells the other ranks.
            group.communicator_for(x.device).all_gatherv(read_of(group, "AllGatherV", x), sizes)
        if x.shape[0] != rows:
            refuse(
                group.communicator_for(x.device),
                "AllGatherV",
                ErrorCode.ERROR_INVALID_TENSOR_DIM,
                f"all_gatherv: tensor {i} of the list has {x.shape[0]} rows, tensor 0 has {rows}",
            )
    return rows


def _bytes_of(x: torch.Tensor, rows: int) -> torch.Tensor:
    columns = x[0:1].numel() if rows else x.shape[1:].numel()
    return x.detach().reshape(rows, columns).contiguous().view(torch.uint8)


def _from_bytes(column: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    # contiguous() would not move a single row, which may begin where no element of the type may.
    packed = column.clone(memory_format=torch.contiguous_format)
    return packed.view(-1).view(like.dtype).view(column.shape[0], *like.shape[1:])
