"""Rows of all ranks, gathered or reduced and scattered, each in one call of a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from collops.errors import Error, ErrorCode
from collops.torch.calls import refuse
from collops.torch.memory import Target, source, target
from collops.torch.reductions import averages_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.torch.group import Group


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
    given, whole = _memory(group, "AllGatherV", x, out)
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
    parts = [_bytes_of(x, rows) for x in xs]
    every = gather_rows(group, torch.cat(parts, dim=1), sizes)
    columns = every.split([part.shape[1] for part in parts], dim=1)
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
    given, own = _memory(group, "ReduceScatterV", x, out)
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


def _memory(
    group: Group, call: str, x: torch.Tensor, out: torch.Tensor
) -> tuple[torch.Tensor, Target]:
    """What the communicator reads and writes; the other ranks are told what it cannot."""
    try:
        return source(call, x), target(call, out)
    except Error as error:
        group.communicator_for(x.device).refuse(call, error)
        raise


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
            group.communicator_for(x.device).all_gatherv(
                _memory(group, "AllGatherV", x, x)[0], sizes
            )
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
