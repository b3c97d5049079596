"""What engines call besides the gathers and scatters of rows: one tensor, from and to all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from collops.errors import Error
from collops.torch.memory import Target, flat, source, target
from collops.torch.reductions import averages_apart

if TYPE_CHECKING:
    from collops.torch.group import Group


def read_of(group: Group, call: str, x: torch.Tensor) -> torch.Tensor:
    """What the communicator reads of a tensor; the other ranks are told if it cannot."""
    try:
        return source(call, x)
    except Error as error:
        group.communicator_for(x.device).refuse(call, error)
        raise


def write_of(group: Group, call: str, out: torch.Tensor, *, keeps_values: bool = False) -> Target:
    """What the communicator writes for a tensor; the other ranks are told if it cannot."""
    try:
        return target(call, out, keeps_values=keeps_values)
    except Error as error:
        group.communicator_for(out.device).refuse(call, error)
        raise


def all_reduce(
    group: Group, x: torch.Tensor, out: torch.Tensor | None = None, op: str = "sum"
) -> torch.Tensor:
    """The reduction over all ranks: in new memory, or in `out`, which may be x itself."""
    if out is None and x.is_cpu:
        # Nearly every call; of a small tensor what follows here would be a third of its time.
        result = torch.empty_like(x)
        if group._plain.all_reduce_at_once(x, op, result):
            return result
    comm = group.communicator_for(x.device)
    given = read_of(group, "AllReduce", x)
    averages = averages_apart(x, op)
    op = "sum" if averages else op
    if out is None:
        out = torch.empty_like(given)  # sooner than the communicator makes it
        own = Target(out)
    else:
        own = write_of(group, "AllReduce", out)
    comm.all_reduce(given, op, own.memory)
    if averages:
        own.memory.div_(comm.size)
    if own.finish is not None:
        own.finish()
    return out


def all_gather(group: Group, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The tensors of all ranks, which have one shape, one after the other along a dimension."""
    comm = group.communicator_for(x.device)
    given = read_of(group, "AllGatherV", x)
    shape = list(x.shape)
    shape[dim] *= comm.size
    sizes = [x.shape[dim]] * comm.size
    return comm.all_gatherv(given, sizes, dim, given.new_empty(shape))


def gather(group: Group, x: torch.Tensor, root: int, dim: int) -> torch.Tensor | None:
    """As all_gather() on one rank; None on the others."""
    comm = group.communicator_for(x.device)
    front = read_of(group, "GatherV", x.movedim(dim, 0))
    every = comm.gatherv(front, [front.shape[0]] * comm.size, root)
    return None if every is None else every.movedim(0, dim).contiguous()


def broadcast(group: Group, x: torch.Tensor, root: int) -> torch.Tensor:
    """Gives every rank the values that the tensor has on one."""
    own = write_of(group, "Broadcast", x, keeps_values=True)
    comm = group.communicator_for(x.device)
    comm.broadcast(own.memory, root)
    if own.finish is not None and comm.rank != root:
        own.finish()
    return x


def send(group: Group, x: torch.Tensor, to: int) -> None:
    """Sends a tensor to another rank, and returns when that rank has it."""
    group.communicator_for(x.device).send(source("Send", x), to)


def recv(group: Group, out: torch.Tensor, from_: int) -> torch.Tensor:
    """Fills a tensor with what another rank sends."""
    own = target("Recv", out)
    group.communicator_for(out.device).recv(own.memory, from_)
    if own.finish is not None:
        own.finish()
    return out


def all_to_all(group: Group, out: torch.Tensor, x: torch.Tensor) -> None:
    """Sends part i of a tensor to rank i, and puts what rank i sends into part i of `out`."""
    given = flat(read_of(group, "AllToAllV", x))
    own = write_of(group, "AllToAllV", out)
    dist.all_to_all_single(flat(own.memory), given, group=group)
    if own.finish is not None:
        own.finish()
